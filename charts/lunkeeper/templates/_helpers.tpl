{{- define "lunkeeper.name" -}}
{{- if contains "lunkeeper" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-lunkeeper" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "lunkeeper.driver" -}}csi.lunkeeper.io{{- end }}

{{- define "lunkeeper.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "lunkeeper.selector" -}}
app.kubernetes.io/name: lunkeeper
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lunkeeper.labels" -}}
{{ include "lunkeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "lunkeeper.coordinatorHost" -}}
{{ include "lunkeeper.name" . }}-coordinator.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "lunkeeper.coordinatorSecret" -}}
{{ .Values.coordinator.tls.secretName | default (printf "%s-coordinator-tls" (include "lunkeeper.name" .)) }}
{{- end }}

{{- define "lunkeeper.coordinatorCa" -}}
{{ .Values.coordinator.tls.caConfigMap | default (printf "%s-coordinator-ca" (include "lunkeeper.name" .)) }}
{{- end }}

{{- define "lunkeeper.coordinatorAuthority" -}}
{{ include "lunkeeper.name" . }}-coordinator-authority
{{- end }}

{{/* The pod that makes and renews the coordinator's certificates. */}}
{{- define "lunkeeper.pkiPod" -}}
metadata:
  labels:
    {{- include "lunkeeper.selector" . | nindent 4 }}
    app.kubernetes.io/component: pki
spec:
  serviceAccountName: {{ include "lunkeeper.name" . }}-pki
  priorityClassName: {{ .Values.controller.priorityClassName }}
  restartPolicy: OnFailure
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.controller.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.controller.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: pki
      image: {{ include "lunkeeper.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - pki
        - renew
        - --ca-secret={{ include "lunkeeper.coordinatorAuthority" . }}
        - --secret={{ include "lunkeeper.coordinatorSecret" . }}
        - --ca-config-map={{ include "lunkeeper.coordinatorCa" . }}
        - --host={{ include "lunkeeper.coordinatorHost" . }}
        - --days={{ .Values.coordinator.tls.validDays }}
        - --ca-days={{ .Values.coordinator.tls.caValidDays }}
        - --log-format={{ .Values.logs.format }}
      resources: {{- toYaml .Values.coordinator.tls.resources | nindent 8 }}
      securityContext: {{- include "lunkeeper.unprivileged" . | nindent 8 }}
{{- end }}

{{/* Names of arrays that settings use, beyond what the schema can tell. */}}
{{- define "lunkeeper.checkArrays" -}}
{{- $names := list }}{{ $defaults := list }}
{{- range .Values.arrays }}
{{- if has .name $names }}{{ fail (printf "arrays: %s is there twice" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end }}
{{- end }}
{{- if gt (len $defaults) 1 }}{{ fail (printf "arrays: %s are all the default; want one" (join ", " $defaults)) }}{{ end }}
{{- $there := join ", " $names }}
{{- range $group := .Values.node.groups }}
{{- range .arrays }}
{{- if not (has . $names) }}{{ fail (printf "node.groups: %s: there is no array %s; there are %s" $group.name . $there) }}{{ end }}
{{- end }}
{{- end }}
{{- range .Values.storageClasses }}
{{- with dig "parameters" "array" "" . }}
{{- if not (has . $names) }}{{ fail (printf "storageClasses: there is no array %s; there are %s" . $there) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Which nodes reach which arrays: [{name, nodeSelector, arrays}]. */}}
{{- define "lunkeeper.groups" -}}
{{- if .Values.node.groups }}{{ toYaml .Values.node.groups }}
{{- else }}
{{- $names := list }}
{{- range .Values.arrays }}{{ $names = append $names .name }}{{ end }}
{{- list (dict "name" "" "nodeSelector" dict "arrays" $names) | toYaml }}
{{- end }}
{{- end }}

{{/* What a sidecar is told beside its own options. */}}
{{- define "lunkeeper.sidecarArgs" -}}
- --csi-address=/csi/csi.sock
- --timeout={{ .Values.sidecars.timeoutSeconds }}s
- --kube-api-qps={{ .Values.sidecars.apiQps }}
- --kube-api-burst={{ .Values.sidecars.apiBurst }}
- --leader-election
- --leader-election-namespace={{ .Release.Namespace }}
- --leader-election-lease-duration={{ .Values.sidecars.lease.durationSeconds }}s
- --leader-election-renew-deadline={{ .Values.sidecars.lease.renewSeconds }}s
- --leader-election-retry-period={{ .Values.sidecars.lease.retrySeconds }}s
- --retry-interval-start=500ms
- --retry-interval-max=30s
{{- end }}

{{- define "lunkeeper.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

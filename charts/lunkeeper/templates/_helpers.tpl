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

{{- define "lunkeeper.keeperHost" -}}
{{ include "lunkeeper.name" . }}-keeper.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "lunkeeper.keeperSecret" -}}
{{ .Values.keeper.tls.secretName | default (printf "%s-keeper-tls" (include "lunkeeper.name" .)) }}
{{- end }}

{{- define "lunkeeper.keeperCa" -}}
{{ .Values.keeper.tls.caConfigMap | default (printf "%s-keeper-ca" (include "lunkeeper.name" .)) }}
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

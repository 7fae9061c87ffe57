{{- define "lunkeeper.name" -}}
{{- $name := .Values.nameOverride | default "lunkeeper" }}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "lunkeeper.driver" -}}csi.lunkeeper.io{{- end }}

{{/* An image's name, in global.imageRegistry if that is set. Called with the root and the name. */}}
{{- define "lunkeeper.inRegistry" -}}
{{- $image := index . 1 }}
{{- with (index . 0).Values.global.imageRegistry }}
{{- $host := splitList "/" $image | first }}
{{- if regexMatch "[.:]|^localhost$" $host }}{{ $image = trimPrefix (printf "%s/" $host) $image }}{{ end }}
{{- $image = printf "%s/%s" (trimSuffix "/" .) $image }}
{{- end }}
{{- $image }}
{{- end }}

{{/* A sidecar's image. Called with the root and the sidecar's name among the settings. */}}
{{- define "lunkeeper.sidecarImage" -}}
{{- $root := index . 0 }}
{{- $image := (index $root.Values.sidecars (index . 1)).image }}
{{- if not $root.Values.sidecars.byDigest }}{{ $image = regexReplaceAll "(:[\\w.-]+)@.*" $image "${1}" }}{{ end }}
{{- include "lunkeeper.inRegistry" (list $root $image) }}
{{- end }}

{{- define "lunkeeper.image" -}}
{{ include "lunkeeper.inRegistry" (list . .Values.image.repository) }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "lunkeeper.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "lunkeeper" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lunkeeper.labels" -}}
{{ include "lunkeeper.selector" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The name of a service account. Called with the root and which: controller, node, agent, pki or uninstall. */}}
{{- define "lunkeeper.account" -}}
{{- $root := index . 0 }}{{ $which := index . 1 }}
{{- $ends := dict "agent" "array" }}
{{- (index $root.Values $which).serviceAccount.name | default (printf "%s-%s" (include "lunkeeper.name" $root) (get $ends $which | default $which)) }}
{{- end }}

{{/* A service account, if the chart is to make it. Called with the root, which, and what is added to it. */}}
{{- define "lunkeeper.serviceAccount" -}}
{{- $root := index . 0 }}{{ $which := index . 1 }}
{{- $wanted := (index $root.Values $which).serviceAccount }}
{{- if $wanted.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "lunkeeper.account" (list $root $which) }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "lunkeeper.labels" $root | nindent 4 }}
  {{- with $wanted.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What is given wins, key by key, also where it is false or empty. Called with the default and what is given. */}}
{{- define "lunkeeper.override" -}}
{{- $all := deepCopy (index . 0) }}
{{- range $key, $value := index . 1 }}{{ $_ := set $all $key $value }}{{ end }}
{{- toYaml $all }}
{{- end }}

{{/* What else a pod's spec may have. Called with the settings of its kind of pod. */}}
{{- define "lunkeeper.podExtras" -}}
{{- $extras := dict }}
{{- range $key, $setting := dict "dnsConfig" "dnsConfig" "hostAliases" "hostAliases" "initContainers" "extraInitContainers" }}
{{- with index $ $setting }}{{ $_ := set $extras $key . }}{{ end }}
{{- end }}
{{- if $extras }}{{ toYaml $extras }}{{ end }}
{{- end }}

{{/* The distribution: what is set, or what the API server calls itself, as v1.36.0+k3s1. Kinds tell less: a restored backup brings them. */}}
{{- define "lunkeeper.distro" -}}
{{- if .Values.distro }}{{ .Values.distro }}
{{- else if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}openshift
{{- else }}{{ regexFind "^(k3s|rke2|k0s)" (.Capabilities.KubeVersion.Version | splitList "+" | last) }}
{{- end }}
{{- end }}

{{/* Where a distribution keeps kubelet and the container runtime's socket: {kubeletDir, runtimeSocket}. */}}
{{- define "lunkeeper.paths" -}}
{{- $distro := include "lunkeeper.distro" . }}
{{- $dirs := dict "k0s" "/var/lib/k0s/kubelet" "microk8s" "/var/snap/microk8s/common/var/lib/kubelet" }}
{{- $sockets := dict
  "k3s" "/run/k3s/containerd/containerd.sock"
  "rke2" "/run/k3s/containerd/containerd.sock"
  "k0s" "/run/k0s/containerd.sock"
  "microk8s" "/var/snap/microk8s/common/run/containerd.sock"
  "openshift" "/run/crio/crio.sock" }}
kubeletDir: {{ .Values.node.kubeletDir | default (get $dirs $distro) | default "/var/lib/kubelet" }}
runtimeSocket: {{ .Values.node.runtimeSocket | default (get $sockets $distro) | default "/run/containerd/containerd.sock" }}
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

{{- define "lunkeeper.authority" -}}
{{ include "lunkeeper.name" . }}-authority
{{- end }}

{{/* Local arrays, complete: [{name, node, path, default, portalAddress, …, agentSecret, tlsSecret, service, host, made}]. */}}
{{- define "lunkeeper.localArrays" -}}
{{- $given := .Values.localArrays }}
{{- if or .Values.localArray.node .Values.localArray.path }}{{ $given = prepend $given .Values.localArray }}{{ end }}
{{- $name := include "lunkeeper.name" . }}
{{- $all := list }}
{{- range $given }}
{{- /* The address is one node's. What is given wins, also a 0. */}}
{{- $shared := omit $.Values.localArray "name" "node" "path" "default" "otherPortalAddresses" "agentSecret" "tlsSecret" }}
{{- if and $.Values.localArray.node (ne (toString .node) $.Values.localArray.node) }}{{ $shared = omit $shared "portalAddress" }}{{ end }}
{{- $array := include "lunkeeper.override" (list $shared .) | fromYaml }}
{{- range list "name" "node" "path" }}
{{- if not (get $array .) }}{{ fail (printf "local array %s: %s is missing: want a name, a node and a path" (get $array "name") .) }}{{ end }}
{{- end }}
{{- if ne (empty $array.agentSecret) (empty $array.tlsSecret) }}
{{- fail (printf "local array %s: agentSecret and tlsSecret go together" $array.name) }}
{{- end }}
{{- $service := printf "%s-array-%s" $name $array.name }}
{{- if gt (len $service) 63 }}{{ fail (printf "%s: want at most 63 characters: shorten the array's or the release's name" $service) }}{{ end }}
{{- $own := dict "service" $service "host" (printf "%s.%s.svc" $service $.Release.Namespace) "made" (empty $array.agentSecret) }}
{{- if $own.made }}{{ $own = merge $own (dict "agentSecret" (printf "%s-tls" $service) "tlsSecret" (printf "%s-controller-tls" $name)) }}{{ end }}
{{- $all = append $all (merge $own $array) }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* Storage hosts that join, which are arrays without Secrets of one's own: [{name, secret, host, account}]. */}}
{{- define "lunkeeper.joining" -}}
{{- $all := list }}
{{- range .Values.arrays }}
{{- if not .tlsSecret }}
{{- $account := printf "%s-array-%s" (include "lunkeeper.name" $) .name }}
{{- $all = append $all (dict "name" .name "account" $account "secret" (printf "%s-tls" $account) "host" (.serverName | default (printf "%s.%s.svc" $account $.Release.Namespace))) }}
{{- end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* All arrays, as `arrays` has them. */}}
{{- define "lunkeeper.arrays" -}}
{{- $all := list }}
{{- range .Values.arrays }}
{{- $array := . }}
{{- range include "lunkeeper.joining" $ | fromYamlArray }}
{{- if eq .name $array.name }}
{{- $array = merge (dict "serverName" .host "tlsSecret" (printf "%s-controller-tls" (include "lunkeeper.name" $))) $array }}
{{- end }}
{{- end }}
{{- $all = append $all $array }}
{{- end }}
{{- range include "lunkeeper.localArrays" . | fromYamlArray }}
{{- $all = append $all (dict "name" .name "address" (printf "%s:%d" .host (int .agentPort)) "tlsSecret" .tlsSecret "default" (default false .default)) }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* The certificates that the Job makes: [{option, secret, host}]; none: there is no Job. */}}
{{- define "lunkeeper.leaves" -}}
{{- $leaves := list }}
{{- if eq .Values.coordinator.tls.source "job" }}
{{- $leaves = append $leaves (dict "option" "server" "secret" (include "lunkeeper.coordinatorSecret" .) "host" (include "lunkeeper.coordinatorHost" .)) }}
{{- end }}
{{- if and (include "lunkeeper.snapshotMetadata" .) (not .Values.snapshots.metadata.tlsSecret) }}
{{- $leaves = append $leaves (dict "option" "server" "secret" (include "lunkeeper.snapshotMetadataSecret" .) "host" (include "lunkeeper.snapshotMetadataHost" .)) }}
{{- end }}
{{- $client := dict "option" "client" "secret" (printf "%s-controller-tls" (include "lunkeeper.name" .)) "host" (printf "controller.%s.cluster.lunkeeper.io" .Values.cluster) }}
{{- $controller := list }}
{{- range include "lunkeeper.localArrays" . | fromYamlArray }}
{{- if .made }}
{{- $leaves = append $leaves (dict "option" "server" "secret" .agentSecret "host" .host) }}
{{- $controller = list $client }}
{{- end }}
{{- end }}
{{- range include "lunkeeper.joining" . | fromYamlArray }}
{{- $leaves = append $leaves (dict "option" "server" "secret" .secret "host" .host) }}
{{- $controller = list $client }}
{{- end }}
{{- toYaml (concat $leaves $controller) }}
{{- end }}

{{/* Not empty: there are snapshots. */}}
{{- define "lunkeeper.snapshots" -}}
{{- if eq (toString .Values.snapshots.enabled) "auto" }}
{{- if .Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1" }}yes{{ end }}
{{- else if .Values.snapshots.enabled }}yes{{ end }}
{{- end }}

{{/* Whether there are groups of snapshots, which have CRDs of their own. */}}
{{- define "lunkeeper.groupSnapshots" -}}
{{- if include "lunkeeper.snapshots" . }}
{{- if eq (toString .Values.snapshots.groups) "auto" }}
{{- if .Capabilities.APIVersions.Has "groupsnapshot.storage.k8s.io/v1" }}yes{{ end }}
{{- else if .Values.snapshots.groups }}yes{{ end }}
{{- end }}
{{- end }}

{{/* Whether backups can ask for changed blocks, which has a CRD of its own. */}}
{{- define "lunkeeper.snapshotMetadata" -}}
{{- if include "lunkeeper.snapshots" . }}
{{- if eq (toString .Values.snapshots.metadata.enabled) "auto" }}
{{- if .Capabilities.APIVersions.Has "cbt.storage.k8s.io/v1beta1" }}yes{{ end }}
{{- else if .Values.snapshots.metadata.enabled }}yes{{ end }}
{{- end }}
{{- end }}

{{- define "lunkeeper.snapshotMetadataSecret" -}}
{{ .Values.snapshots.metadata.tlsSecret | default (printf "%s-snapshot-metadata-tls" (include "lunkeeper.name" .)) }}
{{- end }}

{{- define "lunkeeper.snapshotMetadataHost" -}}
{{ include "lunkeeper.name" . }}-snapshot-metadata.{{ .Release.Namespace }}.svc
{{- end }}

{{/* Where the plugin is silent. Our own pods have to come to such a node: only they end that. */}}
{{- define "lunkeeper.pluginToleration" -}}
- {key: lunkeeper.io/plugin-not-ready, operator: Exists}
{{- end }}

{{/* The pod that makes and renews the cluster's certificates. */}}
{{- define "lunkeeper.pkiPod" -}}
metadata:
  labels:
    {{- include "lunkeeper.labels" . | nindent 4 }}
    app.kubernetes.io/component: pki
spec:
  serviceAccountName: {{ include "lunkeeper.account" (list . "pki") }}
  priorityClassName: {{ .Values.controller.priorityClassName }}
  restartPolicy: OnFailure
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.controller.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  tolerations:
    {{- include "lunkeeper.pluginToleration" . | nindent 4 }}
    {{- with .Values.controller.tolerations }}{{ toYaml . | nindent 4 }}{{ end }}
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
        - --ca-secret={{ include "lunkeeper.authority" . }}
        {{- if eq .Values.coordinator.tls.source "job" }}
        - --ca-config-map={{ include "lunkeeper.coordinatorCa" . }}
        {{- end }}
        {{- range include "lunkeeper.leaves" . | fromYamlArray }}
        - --{{ .option }}={{ .secret }}={{ .host }}
        {{- end }}
        - --days={{ .Values.pki.validDays }}
        - --ca-days={{ .Values.pki.caValidDays }}
        - --log-format={{ .Values.logs.format }}
      resources: {{- toYaml .Values.pki.resources | nindent 8 }}
      securityContext: {{- include "lunkeeper.unprivileged" . | nindent 8 }}
{{- end }}

{{/* helm forgets what was set before once an upgrade is given any value: an array that is left out ends, with the I/O of its nodes. */}}
{{- define "lunkeeper.checkForgotten" -}}
{{- $names := list }}
{{- range include "lunkeeper.localArrays" . | fromYamlArray }}{{ $names = append $names .name }}{{ end }}
{{- range (lookup "apps/v1" "DaemonSet" .Release.Namespace "").items }}
{{- $labels := .spec.template.metadata.labels | default dict }}
{{- $array := get $labels "lunkeeper.io/array" }}
{{- $ours := eq (get $labels "app.kubernetes.io/instance") $.Release.Name }}
{{- if and $array $ours (not .metadata.deletionTimestamp) (not (has $array $names)) }}
{{- fail (printf "the local array %s runs, and the values lack it: give all values again (helm --namespace %s get values %s --output yaml), or --reset-then-reuse-values. To end it for good: delete its volumes, then kubectl --namespace %s delete daemonset %s" $array $.Release.Namespace $.Release.Name $.Release.Namespace .metadata.name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Names of arrays that settings use, beyond what the schema can tell. */}}
{{- define "lunkeeper.checkArrays" -}}
{{- $names := list }}{{ $defaults := list }}{{ $ports := list }}
{{- range include "lunkeeper.arrays" . | fromYamlArray }}
{{- if has .name $names }}{{ fail (printf "arrays: %s is there twice" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- if .default }}{{ $defaults = append $defaults .name }}{{ end }}
{{- end }}
{{- if not $names }}{{ fail "there is no array: set localArray.node and localArray.path, or arrays" }}{{ end }}
{{- range $array := include "lunkeeper.localArrays" . | fromYamlArray }}
{{- $own := list }}
{{- range $number := until (int .tgtds) }}{{ $own = append $own (add $array.portalPort $number) }}{{ end }}
{{- range concat $own (list .agentPort .metricsPort) }}
{{- $port := printf "%s:%d" $array.node (int .) }}
{{- if has $port $ports }}{{ fail (printf "local array %s: port %s is another's: arrays on one node need ports of their own" $array.name $port) }}{{ end }}
{{- $ports = append $ports $port }}
{{- end }}
{{- end }}
{{- include "lunkeeper.checkForgotten" . }}
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
{{- range include "lunkeeper.arrays" . | fromYamlArray }}{{ $names = append $names .name }}{{ end }}
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

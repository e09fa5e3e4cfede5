{{- define "webgym.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "webgym.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "webgym.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "webgym.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "webgym.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "webgym.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "webgym.selectorLabels" -}}
app.kubernetes.io/name: webgym
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "webgym.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "webgym.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* Name of an image: called with (list root "worker"). */ -}}
{{- define "webgym.image" -}}
{{- $root := index . 0 }}
{{- $image := index $root.Values.images (index . 1) }}
{{- if not $image.repository }}{{ $image = $root.Values.images.operator }}{{ end }}
{{- $name := $image.repository }}
{{- if $root.Values.images.registry }}{{ $name = printf "%s/%s" ($root.Values.images.registry | trimSuffix "/") $name }}{{ end }}
{{- if $image.digest }}
{{- printf "%s@%s" $name $image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion (toString $image.tag)) }}
{{- end }}
{{- end }}

{{- /* What the operator does with objects of runs; the same in a Role and in a ClusterRole. */ -}}
{{- define "webgym.rules" -}}
- apiGroups: [webgym.io]
  resources: [webgymruns]
  verbs: [get, list, watch, delete]
- apiGroups: [webgym.io]
  resources: [webgymruns/status]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [pods, services, configmaps, secrets, persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

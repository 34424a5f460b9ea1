{{- define "babelgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains "babelgate" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-babelgate" (.Release.Name | trunc 30 | trimSuffix "-") }}
{{- end -}}
{{- end -}}

{{- define "babelgate.selector" -}}
app.kubernetes.io/name: babelgate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- /* Labels of an object that belongs to no component. */ -}}
{{- define "babelgate.labels" -}}
app.kubernetes.io/name: babelgate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "babelgate.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "babelgate.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- /* The reference of an image: a list of its values and the default tag. */ -}}
{{- define "babelgate.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $image.repository ($image.tag | default (index . 1)) }}
{{- end -}}
{{- end -}}

{{- define "babelgate.tokensSecret" -}}
{{ .Values.tokens.existingSecret | default (printf "%s-tokens" (include "babelgate.fullname" .)) }}
{{- end -}}

{{- define "babelgate.tokenKeysSecret" -}}
{{ .Values.tokenKeys.existingSecret | default (printf "%s-token-keys" (include "babelgate.fullname" .)) }}
{{- end -}}

{{- /* The names of the generated tokens, as a JSON list; empty with auth: none. */ -}}
{{- define "babelgate.tokens" -}}
{{- $names := list -}}
{{- if ne (toString .Values.config.auth) "none" -}}
{{- range $name, $rights := .Values.tokens.rights -}}
{{- if $rights -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{ $names | toJson }}
{{- end -}}

{{- /* Fails unless the token of a name exists; nothing with auth: none, else "true". A list of the root, the name, its use. */ -}}
{{- define "babelgate.needsToken" -}}
{{- $root := index . 0 -}}
{{- if ne (toString $root.Values.config.auth) "none" -}}
{{- if not (has (index . 1) (include "babelgate.tokens" $root | fromJsonArray)) -}}
{{- fail (printf "tokens.rights.%s: is needed for %s" (index . 1) (index . 2)) -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{- /* "true" where a broker is SQLite, which one gateway has for itself. */ -}}
{{- define "babelgate.sqlite" -}}
{{- $found := not .Values.config.brokers -}}
{{- range $name, $broker := .Values.config.brokers -}}
{{- $url := kindIs "string" $broker | ternary $broker (dig "url" "" (kindIs "map" $broker | ternary $broker dict)) -}}
{{- if hasPrefix "sqlite:" $url -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- if $found -}}true{{- end -}}
{{- end -}}

{{- define "babelgate.persistent" -}}
{{- if kindIs "bool" .Values.persistence.enabled -}}
{{- if .Values.persistence.enabled -}}true{{- end -}}
{{- else if or (include "babelgate.sqlite" .) (dig "journal" "landing" "" .Values.config) (dig "audit" "directory" "" .Values.config) -}}
true
{{- end -}}
{{- end -}}

{{- define "babelgate.replicas" -}}
{{- if kindIs "invalid" .Values.replicas -}}
{{ ternary 1 2 (eq (include "babelgate.sqlite" .) "true") }}
{{- else -}}
{{ int .Values.replicas }}
{{- end -}}
{{- end -}}

{{- define "babelgate.host" -}}
{{ .Values.config.host | default "0.0.0.0" }}
{{- end -}}

{{- define "babelgate.port" -}}
{{ .Values.config.port | default 8080 | int }}
{{- end -}}

{{- define "babelgate.scheme" -}}
{{ .Values.config.tls_cert | empty | ternary "http" "https" }}
{{- end -}}

{{- define "babelgate.prefix" -}}
{{ .Values.config.prefix | default "" }}
{{- end -}}

{{- define "babelgate.url" -}}
{{ include "babelgate.scheme" . }}://{{ include "babelgate.fullname" . }}:{{ .Values.service.port }}{{ include "babelgate.prefix" . }}
{{- end -}}

{{- define "babelgate.claim" -}}
{{ .Values.pipeline.storage.existingClaim | default (printf "%s-pipeline" (include "babelgate.fullname" .)) }}
{{- end -}}

{{- define "babelgate.pipeline" -}}
{{- if or .Values.pipeline.cronJob.enabled .Values.pipeline.continuous.commands .Values.pipeline.spark.operator -}}true{{- end -}}
{{- end -}}

{{- /* "true" where the gateways land their journal in the volume of the pipeline. */ -}}
{{- define "babelgate.landsInVolume" -}}
{{- if and (include "babelgate.pipeline" .) .Values.pipeline.storage.enabled -}}
{{- if hasPrefix "/data/" (dig "journal" "landing" "" .Values.config) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The file of the report. */ -}}
{{- define "babelgate.report" -}}
{{- $pipeline := .Values.pipeline -}}
{{- if and (hasPrefix "/data/" $pipeline.report) (not $pipeline.storage.enabled) -}}
{{- fail "pipeline.report: without pipeline.storage.enabled nothing is mounted at /data" -}}
{{- end -}}
{{- $report := $pipeline.report | default (ternary "/data" (regexReplaceAll "/+$" $pipeline.lake "") $pipeline.storage.enabled | printf "%s/report.html") -}}
{{- if not (regexMatch "^(/|file:/|s3[an]?://|gs://)" $report) -}}
{{- fail (printf "pipeline.report: no report can be written to %s: name an absolute path, or a URL of s3a://, s3:// or gs://" $report) -}}
{{- end -}}
{{- $report -}}
{{- end -}}

{{- define "babelgate.podSecurity" -}}
runAsNonRoot: true
{{- /* A large number of the command line is one with an exponent. */ -}}
{{- with .Values.uid }}
runAsUser: {{ . | int64 }}
runAsGroup: {{ . | int64 }}
fsGroup: {{ . | int64 }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "babelgate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

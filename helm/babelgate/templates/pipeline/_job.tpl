{{- define "babelgate.pipelineImage" -}}
{{ include "babelgate.image" (list .Values.pipeline.image .Chart.AppVersion) }}
{{- end -}}

{{- define "babelgate.executorAccount" -}}
{{ include "babelgate.fullname" . }}-executor
{{- end -}}

{{- /* The words after `babelgate` of a job on an operator: a list of the root and the job. */ -}}
{{- define "babelgate.sparkArguments" -}}
{{- $root := index . 0 -}}
{{- $arguments := list "pipeline" (index . 1) "--lake" $root.Values.pipeline.lake -}}
{{- if eq (index . 1) "ingest" -}}
{{- $arguments = concat $arguments (list "--continuous" "--interval-seconds" (toString $root.Values.pipeline.continuous.intervalSeconds.ingest) $root.Values.pipeline.landing) -}}
{{- end -}}
{{- if eq (index . 1) "redrive" -}}
{{- $summary := regexReplaceAll "[^/]*$" (include "babelgate.report" $root) "redrive.json" -}}
{{- $arguments = concat $arguments (list "--url" (include "babelgate.url" $root) "--max-rate" (toString $root.Values.pipeline.spark.redriveRate) "--summary" $summary) -}}
{{- end -}}
{{ $arguments | toJson }}
{{- end -}}

{{- /* Spark's settings of a job on an operator: a list of the root and the job. */ -}}
{{- define "babelgate.sparkConf" -}}
{{- $root := index . 0 -}}
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "babelgate.executorAccount" $root }}
# Executors end by themselves, and go with their driver: it needs no right to delete pods, services or configuration.
spark.kubernetes.executor.deleteOnTermination: "false"
spark.kubernetes.driver.service.deleteOnTermination: "false"
spark.kubernetes.executor.disableConfigMap: "true"
# The volume is there: a driver makes no claims, and has no right to.
spark.kubernetes.driver.ownPersistentVolumeClaim: "false"
spark.kubernetes.driver.reusePersistentVolumeClaim: "false"
# Memory for the codec, which runs in Python beside the JVM.
spark.executor.memoryOverheadFactor: "0.5"
{{- if $root.Values.pipeline.storage.enabled }}
{{- range $pod := list "driver" "executor" }}
spark.kubernetes.{{ $pod }}.volumes.persistentVolumeClaim.data.options.claimName: {{ include "babelgate.claim" $root }}
spark.kubernetes.{{ $pod }}.volumes.persistentVolumeClaim.data.mount.path: /data
{{- end }}
{{- end }}
{{- if eq (index . 1) "redrive" }}
{{- if include "babelgate.needsToken" (list $root "pipeline" "the job redrive") }}
spark.kubernetes.driver.secretKeyRef.BABELGATE_TOKEN: {{ include "babelgate.tokensSecret" $root }}:pipeline
{{- end }}
{{- end }}
{{- if and (eq (index . 1) "ingest") $root.Values.pipeline.landingSecret }}
spark.kubernetes.driver.secretKeyRef.BABELGATE_LANDING_PASSWORD: {{ printf "%s:password" $root.Values.pipeline.landingSecret | quote }}
{{- end }}
{{- range $name, $value := include "babelgate.openlineage" $root | fromJson }}
spark.kubernetes.driverEnv.{{ $name }}: {{ $value | quote }}
{{- end }}
{{- with $root.Values.pipeline.openlineage.secret }}
spark.kubernetes.driver.secretKeyRef.OPENLINEAGE_API_KEY: {{ printf "%s:apiKey" . | quote }}
{{- end }}
{{- end -}}

{{- /* The commands that run until they are stopped, in a Deployment or on an operator, as a JSON list. */ -}}
{{- define "babelgate.endless" -}}
{{- $commands := .Values.pipeline.continuous.commands -}}
{{- if and .Values.pipeline.spark.operator (has "ingest" .Values.pipeline.spark.jobs) -}}
{{- if has "ingest" $commands -}}
{{- fail "pipeline.spark.jobs: a second ingest would refuse to run beside that of pipeline.continuous.commands" -}}
{{- end -}}
{{- $commands = append $commands "ingest" -}}
{{- end -}}
{{ $commands | toJson }}
{{- end -}}

{{- /* The variables of the OpenLineage client, without the key of its server. */ -}}
{{- define "babelgate.openlineage" -}}
{{- $variables := .Values.pipeline.openlineage.env | default dict -}}
{{- with .Values.pipeline.openlineage.url -}}{{- $variables = merge (dict "OPENLINEAGE_URL" .) $variables -}}{{- end -}}
{{- if and .Values.pipeline.openlineage.secret (not $variables.OPENLINEAGE_URL) -}}
{{- fail "pipeline.openlineage.secret: the client uses the key only for the server of pipeline.openlineage.url" -}}
{{- end -}}
{{ $variables | toJson }}
{{- end -}}

{{- /* The labels of all pods of the pipeline: those that the gateway's NetworkPolicy lets in, and those of the values. */ -}}
{{- define "babelgate.pipelineLabels" -}}
{{ merge (dict "app.kubernetes.io/component" "pipeline") (include "babelgate.labels" . | fromYaml) .Values.podLabels | toYaml }}
{{- end -}}

{{- /* Where pods of the pipeline run, as in a pod. */ -}}
{{- define "babelgate.pipelinePlacement" -}}
{{- $placed := dict -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with get $.Values.pipeline $key -}}{{- $_ := set $placed $key . -}}{{- end -}}
{{- end -}}
{{- if $placed -}}{{ $placed | toYaml }}{{- end -}}
{{- end -}}

{{- /* Metadata and the common part of the specification of a pod that runs on its own cores. `command`: of a Deployment. */ -}}
{{- define "babelgate.pipelinePod" -}}
metadata:
  labels:
    {{- include "babelgate.pipelineLabels" . | nindent 4 }}
    {{- with .command }}
    babelgate/command: {{ . }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "babelgate.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- include "babelgate.podSecurity" . | nindent 4 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with include "babelgate.pipelinePlacement" . }}
  {{- . | nindent 2 }}
  {{- end }}
  volumes:
    - name: scratch
      emptyDir: {}
    {{- if .Values.pipeline.storage.enabled }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ include "babelgate.claim" . }}
    {{- end }}
{{- end -}}

{{- /* A container of such a pod: a list of the root, of the values of its size, and of its command. */ -}}
{{- define "babelgate.pipelineContainer" -}}
{{- $root := index . 0 -}}
{{- $size := index . 1 -}}
image: {{ include "babelgate.pipelineImage" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
# For Spark, if a command needs it. As options of the commands they would ask for Spark, also where DuckDB is enough. The
# number of parallel tasks follows the memory of the pod, not the cores of the node.
env:
  - {name: SPARK_DRIVER_MEMORY, value: {{ $size.driverMemory }}}
  - {name: JAVA_TOOL_OPTIONS, value: "-XX:ActiveProcessorCount={{ int $size.tasks }}"}
  {{- if and (eq (index . 2) "ingest") $root.Values.pipeline.landingSecret }}
  - {name: BABELGATE_LANDING_PASSWORD, valueFrom: {secretKeyRef: {name: {{ $root.Values.pipeline.landingSecret | quote }}, key: password}}}
  {{- end }}
  {{- range $name, $value := include "babelgate.openlineage" $root | fromJson }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
  {{- end }}
  {{- with $root.Values.pipeline.openlineage.secret }}
  - {name: OPENLINEAGE_API_KEY, valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: apiKey}}}
  {{- end }}
resources:
  {{- toYaml $size.resources | nindent 2 }}
securityContext:
  {{- include "babelgate.containerSecurity" $root | nindent 2 }}
# The image's own is open to one user only.
workingDir: /tmp
volumeMounts:
  - {name: scratch, mountPath: /tmp}
  {{- if $root.Values.pipeline.storage.enabled }}
  - {name: data, mountPath: /data}
  {{- end }}
{{- end -}}

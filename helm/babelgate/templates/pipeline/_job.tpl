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
{{- if eq (index . 1) "redrive" -}}
{{- $summary := regexReplaceAll "[^/]*$" $root.Values.pipeline.report "redrive.json" -}}
{{- $arguments = concat $arguments (list "--url" (include "babelgate.url" $root) "--max-rate" (toString $root.Values.pipeline.spark.redriveRate) "--summary" $summary) -}}
{{- end -}}
{{ $arguments | toJson }}
{{- end -}}

{{- /* Spark's settings of a job on an operator: a list of the root and the job. */ -}}
{{- define "babelgate.sparkConf" -}}
{{- $root := index . 0 -}}
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "babelgate.executorAccount" $root }}
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
{{- end -}}

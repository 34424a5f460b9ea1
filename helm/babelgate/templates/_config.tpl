{{- /* babelgate.yaml: the values of `config`, and what the chart adds. */ -}}
{{- define "babelgate.config" -}}
{{- $name := include "babelgate.fullname" . -}}
{{- $config := deepCopy .Values.config -}}
{{- range list "state_dir" "token_keys" "peers" "workers" -}}
{{- if hasKey $config . -}}
{{- fail (printf "config.%s: the chart sets it; %s" . (get (dict
    "state_dir" "a pod's state is in /var/lib/babelgate"
    "token_keys" "use tokenKeys"
    "peers" "use peers.port"
    "workers" "a pod has one worker, so raise replicas") .)) -}}
{{- end -}}
{{- end -}}
{{- $report := ($config.console | default dict).report -}}
{{- if and (kindIs "string" $report) (not (trim (toString $report))) -}}
{{- fail "config.console.report: must name a file: leave it out for no report" -}}
{{- end -}}
{{- if regexMatch "^[A-Za-z][A-Za-z0-9+.-]*:/" ($report | default "") -}}
{{- fail "config.console.report: must be a path, not a URL: name a file below /data that gateways and jobs mount, or leave it out and read the report from its bucket" -}}
{{- end -}}
{{- if and (hasPrefix "/data/" ($report | default "")) (include "babelgate.pipeline" .) -}}
{{- if .Values.pipeline.cronJob.enabled -}}
{{- $written := include "babelgate.report" . -}}
{{- if regexMatch "^(s3[an]?|gs)://" $written -}}
{{- fail (printf "config.console.report: the jobs write the report to %s, and nothing to /data: name a file of the volume in pipeline.report, or leave config.console.report out and read the report from its bucket" $written) -}}
{{- end -}}
{{- end -}}
{{- if not (include "babelgate.landsInVolume" .) -}}
{{- fail "config.console.report: gateways mount /data only with pipeline.storage.enabled and a config.journal.landing below /data: set both, or leave it out" -}}
{{- end -}}
{{- end -}}
{{- include "babelgate.refuseSecrets" . -}}
{{- $listen := contains ":" (include "babelgate.host" .) | ternary "[::]" "0.0.0.0" -}}
{{- $_ := set $config "host" (include "babelgate.host" .) -}}
{{- $_ := set $config "port" (include "babelgate.port" . | int) -}}
{{- $_ := set $config "state_dir" "/var/lib/babelgate" -}}
{{- $keys := list -}}
{{- range .Values.tokenKeys.ids -}}
{{- $keys = append $keys (dict "id" . "secret" (printf "${file:/run/babelgate/token-keys/%s}" .)) -}}
{{- end -}}
{{- $_ := set $config "token_keys" $keys -}}
{{- $_ := set $config "peers" (dict
    "listen" (printf "%s:%d" $listen (int .Values.peers.port))
    "dns" (printf "%s-peers:%d" $name (int .Values.peers.port))) -}}
{{- if eq (toString $config.auth) "none" -}}
{{- $hosts := $config.hosts | default list -}}
{{- if kindIs "string" $hosts -}}{{- $hosts = splitList "," $hosts -}}{{- end -}}
{{- $own := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- /* Prometheus scrapes a pod by its address. */ -}}
{{- $own = append $own (contains ":" (include "babelgate.host" .) | ternary "[${env:POD_IP}]" "${env:POD_IP}") -}}
{{- if .Values.ingress.enabled -}}{{- $own = concat $own .Values.ingress.hosts -}}{{- end -}}
{{- if .Values.httpRoute.enabled -}}{{- $own = concat $own .Values.httpRoute.hostnames -}}{{- end -}}
{{- $_ := set $config "hosts" (concat $hosts $own | uniq) -}}
{{- else -}}
{{- $tokens := dig "tokens" list ($config.auth | default dict) -}}
{{- range $token := include "babelgate.tokens" . | fromJsonArray -}}
{{- $sha256 := printf "${file:/run/babelgate/tokens/%s.sha256}" $token -}}
{{- $tokens = append $tokens (dict "name" $token "sha256" $sha256 "rights" (get $.Values.tokens.rights $token)) -}}
{{- end -}}
{{- /* With issuers in config.auth, every token may be set to null. */ -}}
{{- if $tokens -}}
{{- $_ := set $config "auth" (merge (dict "tokens" $tokens) ($config.auth | default dict)) -}}
{{- end -}}
{{- end -}}
{{- if not (hasKey ($config.reload | default dict) "watch") -}}
{{- $_ := set $config "reload" (merge (dict "watch" true) ($config.reload | default dict)) -}}
{{- end -}}
{{- $queues := $config.queues | default dict -}}
{{- $patterns := list -}}
{{- range $queue, $_ := $queues -}}
{{- if contains "*" $queue -}}{{- $patterns = append $patterns $queue -}}{{- end -}}
{{- end -}}
{{- if gt (len $patterns) 1 -}}
{{- range $patterns -}}
{{- if not (has . $.Values.patternOrder) -}}
{{- fail (printf "patternOrder: config.queues has several patterns, and %s is not in the list" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ omit $config "queues" | toYaml }}
{{- if or $queues .Values.patternOrder }}
queues:
  {{- range $queue := concat .Values.patternOrder (keys $queues | sortAlpha) | uniq }}
  {{ $queue | toJson }}: {{ get $queues $queue | required (printf "patternOrder: config.queues has no %s" $queue) | toJson }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* The sections that running pods apply by a reload. A test compares the list with the program's own. */ -}}
{{- define "babelgate.reloadedKeys" -}}
["body_keys", "brokers", "cors", "default", "limits", "log_level", "push", "queues", "schemas"]
{{- end -}}

{{- /* What of the configuration starts new pods: all that a reload cannot apply. */ -}}
{{- define "babelgate.startsPods" -}}
{{- $config := include "babelgate.config" . | fromYaml -}}
{{- if $config.reload.watch -}}
{{- range include "babelgate.reloadedKeys" . | fromJsonArray -}}
{{- $config = omit $config . -}}
{{- end -}}
{{- if kindIs "map" $config.auth -}}
{{- $_ := set $config "auth" (omit $config.auth "tokens" "certificates" "issuers") -}}
{{- end -}}
{{- $_ := set $config "rate_limits" (pick ($config.rate_limits | default dict) "store") -}}
{{- end -}}
{{ $config | toYaml }}
{{- end -}}

{{- /* The keys of the configuration whose values are secrets. A test compares the list with the program's own. */ -}}
{{- define "babelgate.secretKeys" -}}
["connection_string", "management_password", "oauth2_client_secret", "password", "secret", "secrets", "token"]
{{- end -}}

{{- /* Ends of names of environment variables whose values are secrets, besides these keys in upper case. */ -}}
{{- define "babelgate.secretVariables" -}}
["ACCESS_KEY", "ACCOUNT_KEY", "API_KEY", "CREDENTIALS", "CREDENTIALS_JSON", "PASSPHRASE", "PRIVATE_KEY", "SAS_TOKEN", "TOKEN_KEYS", "_HEADERS"]
{{- end -}}

{{- /* Fails if `config` or `env` has a secret: everyone who may read ConfigMaps or pods could read it. */ -}}
{{- define "babelgate.refuseSecrets" -}}
{{- $config := "put it in a Secret, name that in `secrets`, and write ${file:/run/secrets/NAME/KEY}" -}}
{{- range $broker, $options := .Values.config.brokers -}}
{{- /* A broker may have any name, and its value may be only its URL. */ -}}
{{- include "babelgate.refuseSecret" (list (printf "config.brokers.%s" $broker) "url" $options $config) -}}
{{- end -}}
{{- range $key, $value := omit .Values.config "brokers" -}}
{{- include "babelgate.refuseSecret" (list (printf "config.%s" $key) $key $value $config) -}}
{{- end -}}
{{- include "babelgate.refuseSecret" (list "pipeline.landing" "" .Values.pipeline.landing "leave the password out: that of a topic belongs in a Secret that pipeline.landingSecret names") -}}
{{- $ends := concat (include "babelgate.secretKeys" . | fromJsonArray) (include "babelgate.secretVariables" . | fromJsonArray) -}}
{{- /* The client of OpenLineage adds headers and settings of Kafka's clients. */ -}}
{{- $ofLineage := concat $ends (list "APIKEY" "AUTHORIZATION" "JAAS_CONFIG" "KEY_PEM") -}}
{{- $lineage := "put the key of an HTTP server in a Secret, and name that in pipeline.openlineage.secret; other transports read secrets from openlineage.yml, in an image of yours or on the volume at /data, which OPENLINEAGE_CONFIG names" -}}
{{- include "babelgate.refuseSecret" (list "pipeline.openlineage.url" "" .Values.pipeline.openlineage.url $lineage) -}}
{{- /* The client reads a value that is JSON as a part of its configuration, whose keys may have dots or hyphens. */ -}}
{{- $keys := join "|" $ofLineage | replace "_" "[_.-]?" | printf "(?i)\"[^\"]*(%s)\"\\s*:" -}}
{{- $names := join "|" (append $ofLineage "AUTH") | upper | printf "(%s)$" -}}
{{- range $name, $value := .Values.pipeline.openlineage.env -}}
{{- $key := ternary "secret" "" (or (regexMatch $names $name) (regexMatch $keys $value)) -}}
{{- include "babelgate.refuseSecret" (list (printf "pipeline.openlineage.env.%s" $name) $key $value $lineage) -}}
{{- end -}}
{{- range .Values.env -}}
{{- $variable := "put it in a Secret, and refer to that with valueFrom.secretKeyRef instead of value" -}}
{{- $value := .value | default "" -}}
{{- $key := regexMatch (printf "(%s)$" (join "|" $ends | upper)) .name | ternary "secret" "" -}}
{{- if and (hasPrefix "BABELGATE_" .name) (hasPrefix "{" $value) -}}
{{- $value = fromJson $value -}}
{{- else if and (hasPrefix "BABELGATE_" .name) (hasPrefix "[" $value) -}}
{{- $value = fromJsonArray $value -}}
{{- end -}}
{{- include "babelgate.refuseSecret" (list (printf "env.%s" .name) $key $value $variable) -}}
{{- end -}}
{{- end -}}

{{- /* Fails if a value is a secret: a list of its path, its key, the value, and what to do instead. */ -}}
{{- define "babelgate.refuseSecret" -}}
{{- $path := index . 0 -}}
{{- $key := index . 1 -}}
{{- $value := index . 2 -}}
{{- $instead := index . 3 -}}
{{- if kindIs "map" $value -}}
{{- range $name, $inner := $value -}}
{{- /* The headers of pushes are values by name; other `headers` are lists of names. */ -}}
{{- include "babelgate.refuseSecret" (list (printf "%s.%s" $path $name) (eq $key "headers" | ternary "secret" $name) $inner $instead) -}}
{{- end -}}
{{- else if kindIs "slice" $value -}}
{{- range $index, $inner := $value -}}
{{- include "babelgate.refuseSecret" (list (printf "%s.%d" $path $index) (eq $key "secrets" | ternary "secret" "") $inner $instead) -}}
{{- end -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- /* What is left without references: ${file:…} and ${env:…} of the gateway, $(NAME) of a container's variables. */ -}}
{{- $rest := regexReplaceAll "[$]([{](env|file):[^}]*[}]|[(][A-Za-z0-9_]+[)])" (toString $value) "" -}}
{{- $keys := include "babelgate.secretKeys" . | fromJsonArray -}}
{{- $isSecret := and (has $key $keys) (ne $rest "") -}}
{{- if eq $key "connection_string" -}}
{{- /* Its other members may stand beside the reference. */ -}}
{{- $isSecret = and $isSecret (not (regexMatch "(?i)sharedaccess(key|signature)=(;|$)" $rest)) -}}
{{- else if eq $key "sha256" -}}
{{- /* Anything but a hash may be the token itself. */ -}}
{{- $isSecret = not (regexMatch "^([0-9A-Fa-f]{64})?$" $rest) -}}
{{- end -}}
{{- /* A password in a URL, which may contain unencoded characters; a secret option in its query; a key of Azure. */ -}}
{{- $places := list "://[^:/?#@]*:([^/?#]+@|[^0-9@/][^@]*@)" (printf "[?&](%s)=[^&]" (join "|" $keys)) "(?i)sharedaccess(key|signature)=[^;]" -}}
{{- if or $isSecret (regexMatch (join "|" $places) $rest) -}}
{{- fail (printf "%s: everyone who may read a ConfigMap or a pod could read this secret; %s" $path $instead) -}}
{{- end -}}
{{- end -}}
{{- end -}}

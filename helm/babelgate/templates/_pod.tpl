{{- /* The pod template of the gateway. */ -}}
{{- define "babelgate.pod" -}}
{{- $name := include "babelgate.fullname" . -}}
{{- $prefix := include "babelgate.prefix" . -}}
{{- $tokens := include "babelgate.tokens" . | fromJsonArray -}}
metadata:
  labels:
    {{- include "babelgate.labels" . | nindent 4 }}
    app.kubernetes.io/component: gateway
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # What a reload cannot apply starts new pods; it names the token keys, too.
    checksum/config: {{ include "babelgate.startsPods" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "babelgate.serviceAccount" . }}
  # The gateway does not use the API of Kubernetes. Cloud identities mount tokens of their own.
  automountServiceAccountToken: false
  enableServiceLinks: false
  # The wait before the signal, draining, requests in flight, the 20 s that closing may take, and some to spare.
  terminationGracePeriodSeconds: {{ add .Values.preStopSeconds (.Values.config.drain_seconds | default 0 | ceil) (.Values.config.shutdown_seconds | default 20 | ceil) 20 5 }}
  securityContext:
    {{- include "babelgate.podSecurity" . | nindent 4 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  initContainers:
    - name: check-config
      {{- include "babelgate.container" . | nindent 6 }}
      args: [check-config, --offline]
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
  containers:
    - name: gateway
      {{- include "babelgate.container" . | nindent 6 }}
      args: [serve, --quiet]
      ports:
        - name: http
          containerPort: {{ include "babelgate.port" . }}
        - name: peers
          containerPort: {{ .Values.peers.port }}
      startupProbe:
        httpGet: &startup
          path: {{ $prefix }}/startupz
          port: http
          scheme: {{ include "babelgate.scheme" . | upper }}
        periodSeconds: 2
        failureThreshold: 60
      # Asks required brokers, for at most 2 s.
      readinessProbe:
        httpGet:
          <<: *startup
          path: {{ $prefix }}/readyz
        periodSeconds: 5
        timeoutSeconds: 4
        failureThreshold: 2
      # Asks no broker: only a process that hangs is restarted.
      livenessProbe:
        httpGet:
          <<: *startup
          path: {{ $prefix }}/livez
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      lifecycle:
        preStop:
          exec:
            command: [sleep, {{ .Values.preStopSeconds | quote }}]
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
  volumes:
    - name: config
      configMap:
        name: {{ $name }}
    - name: token-keys
      secret:
        secretName: {{ include "babelgate.tokenKeysSecret" . }}
        items:
          {{- range .Values.tokenKeys.ids }}
          - {key: {{ . | quote }}, path: {{ . | quote }}}
          {{- end }}
    {{- if $tokens }}
    # Only the hashes: the gateway does not know the tokens.
    - name: tokens
      secret:
        secretName: {{ include "babelgate.tokensSecret" . }}
        items:
          {{- range $tokens }}
          - {key: {{ . }}.sha256, path: {{ . }}.sha256}
          {{- end }}
    {{- end }}
    {{- range $short, $secret := .Values.secrets }}
    - name: secret-{{ $short }}
      secret:
        secretName: {{ $secret }}
    {{- end }}
    - name: tmp
      # Twice what the results of uploads may take: a pod that exceeds it is evicted.
      emptyDir: {sizeLimit: 1Gi}
    {{- if not (include "babelgate.persistent" .) }}
    - name: state
      emptyDir: {}
    {{- end }}
    {{- if include "babelgate.landsInVolume" . }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ include "babelgate.claim" . }}
    {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - labelSelector:
        matchLabels:
          {{- include "babelgate.selector" $ | nindent 10 }}
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end -}}

{{- /* What the check and the gateway have in common, so that the check sees what the gateway will see. */ -}}
{{- define "babelgate.container" -}}
image: {{ include "babelgate.image" (list .Values.image .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "babelgate.containerSecurity" . | nindent 2 }}
env:
  - name: BABELGATE_CONFIG
    value: /etc/babelgate/babelgate.yaml
  # The image sets this variable, and a variable overrides the file.
  - name: BABELGATE_HOST
    value: {{ include "babelgate.host" . | quote }}
  - name: POD_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: config, mountPath: /etc/babelgate, readOnly: true}
  - {name: token-keys, mountPath: /run/babelgate/token-keys, readOnly: true}
  {{- if include "babelgate.tokens" . | fromJsonArray }}
  - {name: tokens, mountPath: /run/babelgate/tokens, readOnly: true}
  {{- end }}
  {{- range $short, $_ := .Values.secrets }}
  - {name: secret-{{ $short }}, mountPath: /run/secrets/{{ $short }}, readOnly: true}
  {{- end }}
  - {name: state, mountPath: /var/lib/babelgate}
  - {name: tmp, mountPath: /tmp}
  {{- if include "babelgate.landsInVolume" . }}
  - {name: data, mountPath: /data}
  {{- end }}
{{- end -}}

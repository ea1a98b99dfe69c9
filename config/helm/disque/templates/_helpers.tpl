{{/* What selects all pods of the release. */}}
{{- define "disque.release" -}}
app.kubernetes.io/name: disque
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What selects pods: (dict "root" $ "part" "node"). */}}
{{- define "disque.selector" -}}
{{ include "disque.release" .root }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* The labels of an object: (dict "root" $ "part" "node"). */}}
{{- define "disque.labels" -}}
{{ include "disque.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "disque.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{/* HOST:PORT of the cluster. */}}
{{- define "disque.address" -}}
{{ .Values.address | default (printf "%s:7711" .Release.Name) }}
{{- end }}

{{- define "disque.account" -}}
{{ .Values.serviceAccount.name | default (ternary .Release.Name "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "disque.job" -}}
{{ .Values.monitoring.job | default (printf "disque-%s" .Release.Name) }}
{{- end }}

{{- define "disque.tls.secret" -}}
{{ .Values.tls.secret | default (printf "%s-tls" .Release.Name) }}
{{- end }}

{{- define "disque.tls.name" -}}
{{ .Values.tls.serverName | default .Release.Name }}
{{- end }}

{{/* Labels and annotations of a pod: (dict "root" $ "part" "node" "pod" .Values.pod "annotations" (dict)). */}}
{{- define "disque.pod.metadata" -}}
labels:
  {{- include "disque.selector" . | nindent 2 }}
  {{- with .pod.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.pod.annotations | default dict) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where a pod runs, and as whom: (dict "root" $ "part" "node" "pod" .Values.pod). */}}
{{- define "disque.pod.spec" -}}
# A service named disque would set DISQUE_PORT.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .root.Values.user }}
  runAsUser: {{ . }}
  runAsGroup: {{ . }}
  fsGroup: {{ . }}
  {{- end }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "disque.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{/* The volume with the certificates that a client needs, if any. */}}
{{- define "disque.client.volume" -}}
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "disque.tls.secret" . }}
    items:
      - key: ca.crt
        path: ca.crt
      {{- if ne .Values.tls.clients "no" }}
      - key: tls.crt
        path: tls.crt
      - key: tls.key
        path: tls.key
      {{- end }}
{{- end }}
{{- end }}

{{- define "disque.client.mount" -}}
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /run/tls
  readOnly: true
{{- end }}
{{- end }}

{{/* Options of a program that is a client. */}}
{{- define "disque.client.args" -}}
{{- if .Values.tls.enabled }}
- --tls
- --cacert=/run/tls/ca.crt
- --sni={{ include "disque.tls.name" . }}
{{- if ne .Values.tls.clients "no" }}
- --cert=/run/tls/tls.crt
- --key=/run/tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{/* The URL of the cluster, with $(DISQUE_PASSWORD). */}}
{{- define "disque.client.url" -}}
{{- $address := include "disque.address" . -}}
{{- if not .Values.tls.enabled -}}
disque://:$(DISQUE_PASSWORD)@{{ $address }}
{{- else -}}
disques://:$(DISQUE_PASSWORD)@{{ $address }}?ssl_ca_certs=/run/tls/ca.crt&ssl_server_name={{ include "disque.tls.name" . }}
{{- if ne .Values.tls.clients "no" }}&ssl_certfile=/run/tls/tls.crt&ssl_keyfile=/run/tls/tls.key{{ end }}
{{- end }}
{{- end }}

{{/* A claim: (dict "root" $ "part" "console" "storage" .Values.console.storage). */}}
{{- define "disque.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  labels: {{- include "disque.labels" . | nindent 4 }}
spec:
  accessModes: ["ReadWriteOnce"]
  {{- with .storage.className }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .storage.size }}
{{- end }}

{{/* What KEDA asks Prometheus: (dict "root" $ "queues" (list "mail")). It counts jobs in hand, so that
     no worker is removed while it has jobs. A queue that nodes have forgotten has none. */}}
{{- define "disque.scale.query" -}}
{{- $names := list -}}
{{- range .queues }}{{ $names = append $names (regexQuoteMeta . | replace "\\" "\\\\" | replace "\"" "\\\"") }}{{ end -}}
sum(disque_queue_jobs{job={{ include "disque.job" .root | quote }},queue=~"{{ join "|" $names }}",state=~"queued|active"}) or 0 * sum(disque_up{job={{ include "disque.job" .root | quote }}})
{{- end }}

{{/* The rest of a ScaledObject: (dict "root" $ "deployment" "x" "queues" (list) "scale" .autoscale). */}}
{{- define "disque.scale.spec" -}}
scaleTargetRef:
  name: {{ .deployment }}
minReplicaCount: {{ .scale.min | default 0 }}
maxReplicaCount: {{ .scale.max | default 20 }}
triggers:
  - type: prometheus
    metadata:
      serverAddress: {{ .scale.prometheus | quote }}
      query: {{ include "disque.scale.query" . | quote }}
      threshold: {{ .scale.jobsPerWorker | default 16 | quote }}
      # Without an answer the number stays as it is.
      ignoreNullValues: "false"
{{- end }}

{{/* The container of a pod that runs disque-pipeline, but for its probes and volumes: (dict "root" $ "part" "audit"
     "of" .Values.audit "command" (list)). */}}
{{- define "disque.pipeline" -}}
- name: {{ .part }}
  image: {{ required (printf "%s.image: which image has Java and disque-trio[spark]?" .part) (.of.image | default .root.Values.archive.image) | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: {{- toYaml .command | nindent 4 }}
  env:
    - name: DISQUECLI_AUTH
      valueFrom:
        secretKeyRef:
          name: {{ .root.Values.secret }}
          key: password
    - name: HOME # of Ivy and Spark's work files
      value: /tmp
    {{- with .of.pod.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .of.pod.envFrom }}
  envFrom: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- include "disque.container.security" .root | nindent 4 }}
  resources: {{- toYaml .of.resources | nindent 4 }}
{{- end }}

{{/* Its volumes: (dict "root" $ "part" "audit" "of" .Values.audit "claim" "jobs-audit"); without a claim its
     directory goes with the pod. */}}
{{- define "disque.pipeline.volumes" -}}
- name: {{ .part }}
  {{- if .claim }}
  persistentVolumeClaim:
    claimName: {{ .claim }}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- include "disque.events.volume" .root }}
{{- include "disque.client.volume" .root }}
{{- with .of.pod.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "disque.pipeline.mounts" -}}
- name: {{ .part }}
  mountPath: {{ .path }}
- name: tmp
  mountPath: /tmp
{{- include "disque.events.mount" .root }}
{{- include "disque.client.mount" .root }}
{{- with .of.pod.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volume that nodes write event logs to, if any. */}}
{{- define "disque.events.volume" -}}
{{- with .Values.events.claim }}
- name: events
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- end }}

{{- define "disque.events.mount" -}}
{{- if .Values.events.claim }}
- name: events
  mountPath: /events
{{- end }}
{{- end }}

{{/* Where event logs are, as a list in YAML: (dict "root" $ "part" "audit" "of" .Values.audit). */}}
{{- define "disque.logs" -}}
{{- if .of.logs -}}
{{ toYaml .of.logs }}
{{- else -}}
{{- $_ := required (printf "%s.logs or events.claim: where are the event logs?" .part) .root.Values.events.claim -}}
- /events
{{- end }}
{{- end }}

{{/* The head of a CronJob that runs disque-pipeline, up to its container. */}}
{{- define "disque.pipeline.cron" -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  labels: {{- include "disque.labels" . | nindent 4 }}
spec:
  schedule: {{ .of.schedule | quote }}
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 0 # the next run goes on where this one ended
      template:
        metadata:
          {{- include "disque.pod.metadata" . | nindent 10 }}
        spec:
          automountServiceAccountToken: false
          restartPolicy: Never
{{- end }}

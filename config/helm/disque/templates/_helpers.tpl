{{- define "disque.labels" -}}
app.kubernetes.io/name: disque
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

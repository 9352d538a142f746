{{- define "tko.labels" -}}
app.kubernetes.io/part-of: tko
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tko.selector" -}}
app.kubernetes.io/name: tko
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* A pod's security context, without users where the platform assigns them. */}}
{{- define "tko.users" -}}
{{- if .assigned }}
{{- toYaml (omit .context "runAsUser" "runAsGroup" "fsGroup") }}
{{- else }}
{{- toYaml .context }}
{{- end }}
{{- end }}

{{/* One role: its service account, Deployment and disruption budget. */}}
{{- define "tko.role" -}}
{{- $data := eq .role "data" }}
{{- $scheduler := eq .role "meta-scheduler" }}
{{- $gitops := eq .role "gitops" }}
{{- $awx := or $scheduler (eq .role "preparer") }}
{{- $kubernetes := and $data .Values.kubernetesAPI.enabled }}
{{- $identity := .Values.identity.enabled }}
{{- if and $identity (not .Values.kubernetesAPI.enabled) }}
{{- fail "identity.enabled needs kubernetesAPI.enabled: its certificate and its rights to review tokens are used" }}
{{- end }}
{{- $agents := and $data .Values.agents.enabled }}
{{- if and .Values.agents.enabled (not $identity) }}
{{- fail "agents.enabled needs identity.enabled: agents call over TLS only" }}
{{- end }}
{{- $scheme := $identity | ternary "HTTPS" "HTTP" }}
{{- $management := and $scheduler .Values.kubernetesSites.management }}
{{- $labelled := and $scheduler (ne .Values.kubernetesSites.labels "") }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: tko-{{ .role }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "tko.labels" . | nindent 4 }}
  {{- with .settings.serviceAccountAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: tko-{{ .role }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "tko.labels" . | nindent 4 }}
    {{- include "tko.selector" .role | nindent 4 }}
spec:
  replicas: {{ .settings.replicas }}
  strategy:
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  selector:
    matchLabels:
      {{- include "tko.selector" .role | nindent 6 }}
  template:
    metadata:
      labels:
        app.kubernetes.io/part-of: tko
        {{- include "tko.selector" .role | nindent 8 }}
      {{- with .settings.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: tko-{{ .role }}
      automountServiceAccountToken: {{ or $kubernetes $management $labelled $gitops }} # to authenticate users, or to read kubeconfigs or sources
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      {{- with .Values.image.pullSecrets }}
      imagePullSecrets:
      {{- range . }}
      - name: {{ . }}
      {{- end }}
      {{- end }}
      securityContext:
        {{- include "tko.users" (dict "assigned" .Values.assignedUsers "context" .Values.podSecurityContext) | nindent 8 }}
      {{- with .settings.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .settings.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .settings.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels:
            {{- include "tko.selector" .role | nindent 12 }}
      containers:
      - name: tko-server
        image: {{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
        {{- with .Values.image.pullPolicy }}
        imagePullPolicy: {{ . }}
        {{- end }}
        args:
        - --roles={{ .role }}
        {{- if $data }}
        - --listen-grpc=*:50050
        {{- else }}
        - --data=tko-data:50050
        {{- end }}
        {{- if $kubernetes }}
        - --kubernetes=*:50052
        - --kubernetes-cert=/certificate/tls.crt
        - --kubernetes-key=/certificate/tls.key
        {{- end }}
        {{- if $agents }}
        - --listen-agents=*:50060
        - --agents-ca=/agents-ca/tls.crt
        - --agents-ca-key=/agents-ca/tls.key
        {{- end }}
        - --listen-health=*:50059
        {{- if .Values.podMonitor.enabled }}
        - --listen-metrics=*:50057
        {{- end }}
        {{- if $identity }}
        - --tls-cert=/certificate/tls.crt
        - --tls-key=/certificate/tls.key
        {{- if $data }}
        - --access={{ .Values.identity.access }}
        - --token-review=in-cluster
        {{- range list "preparer" "meta-scheduler" "gitops" }}
        - --controllers={{ . }}=k8s:system:serviceaccount:{{ $.Release.Namespace }}:tko-{{ . }}
        {{- end }}
        {{- with .Values.identity.clientCA }}
        - --tls-client-ca=/client-ca/ca.crt
        {{- end }}
        {{- with .Values.identity.oidc }}
        {{- if .issuer }}
        - {{ printf "--oidc-issuer=%s" .issuer | quote }}
        - {{ printf "--oidc-audience=%s" .audience | quote }}
        - {{ printf "--oidc-alias=%s" .alias | quote }}
        - {{ printf "--oidc-groups-claim=%s" .groupsClaim | quote }}
        {{- end }}
        {{- end }}
        {{- else }}
        - --data-tls-ca=/certificate/ca.crt
        - --data-tls-server-name=tko-data.{{ .Release.Namespace }}.svc
        - --data-token-file=/token/token
        {{- end }}
        {{- else }}
        - --insecure # inside the cluster; see docs/security.md for TLS and identities
        {{- end }}
        - --log-format=json
        {{- if and (not .Values.approval.automatic) (or $data (eq .role "preparer")) }}
        - --preparer-auto-approve=false
        {{- end }}
        {{- if and (not .Values.approval.automatic) $data }}
        - --withdraw-approval
        {{- end }}
        {{- if $awx }}
        - --awx-secrets=/awx-secrets
        {{- end }}
        {{- if $scheduler }}
        - --target-git-cache=/cache/git
        - --target-git-secrets=/git-secrets
        - --osm-secrets=/osm-secrets
        - --kubeconfigs=/kubeconfigs
        {{- end }}
        {{- if $gitops }}
        - --gitops-dir=/cache
        - --flux-in-cluster
        {{- end }}
        {{- if $management }}
        - --management-kubeconfig=/management/kubeconfig
        {{- end }}
        {{- if $labelled }}
        - {{ printf "--kubeconfig-secrets=%s" .Values.kubernetesSites.labels | quote }}
        {{- end }}
        {{- range .settings.flags }}
        - {{ . | quote }}
        {{- end }}
        env:
        - name: XDG_CACHE_HOME
          value: /cache
        {{- if $data }}
        - name: TKO_STORE
          valueFrom:
            secretKeyRef:
              name: {{ .Values.database.secret }}
              key: {{ .Values.database.key }}
        {{- end }}
        {{- with .settings.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        {{- if $data }}
        - name: grpc
          containerPort: 50050
        {{- end }}
        {{- if $kubernetes }}
        - name: kubernetes
          containerPort: 50052
        {{- end }}
        {{- if $agents }}
        - name: agents
          containerPort: 50060
        {{- end }}
        - name: health
          containerPort: 50059
        {{- if .Values.podMonitor.enabled }}
        - name: metrics
          containerPort: 50057
        {{- end }}
        startupProbe: # migrations of a large database take long
          httpGet:
            path: /healthz
            port: health
            {{- if $identity }}
            scheme: {{ $scheme }}
            {{- end }}
          periodSeconds: 2
          failureThreshold: {{ $data | ternary 900 60 }}
        livenessProbe:
          httpGet:
            path: /healthz
            port: health
            {{- if $identity }}
            scheme: {{ $scheme }}
            {{- end }}
          timeoutSeconds: 5
          failureThreshold: 6
        readinessProbe:
          httpGet:
            path: /readyz
            port: health
            {{- if $identity }}
            scheme: {{ $scheme }}
            {{- end }}
          periodSeconds: 5
          timeoutSeconds: 5
        lifecycle:
          preStop: # clients must learn first that the pod stops
            sleep:
              seconds: 5
        resources:
          {{- toYaml .settings.resources | nindent 10 }}
        securityContext:
          {{- toYaml .Values.securityContext | nindent 10 }}
        volumeMounts:
        - name: cache
          mountPath: /cache
        - name: tmp
          mountPath: /tmp
        {{- if or $kubernetes $identity }}
        - name: certificate
          mountPath: /certificate
          readOnly: true
        {{- end }}
        {{- if and $identity (not $data) }}
        - name: token
          mountPath: /token
          readOnly: true
        {{- end }}
        {{- if and $identity $data .Values.identity.clientCA }}
        - name: client-ca
          mountPath: /client-ca
          readOnly: true
        {{- end }}
        {{- if $agents }}
        - name: agents-ca
          mountPath: /agents-ca
          readOnly: true
        {{- end }}
        {{- if $awx }}
        - name: awx-secrets
          mountPath: /awx-secrets
          readOnly: true
        {{- end }}
        {{- if $scheduler }}
        - name: git-secrets
          mountPath: /git-secrets
          readOnly: true
        - name: osm-secrets
          mountPath: /osm-secrets
          readOnly: true
        - name: kubeconfigs
          mountPath: /kubeconfigs
          readOnly: true
        {{- end }}
        {{- if $gitops }}
        - name: connections
          mountPath: /etc/osmops
          readOnly: true
        {{- end }}
        {{- if $management }}
        - name: management
          mountPath: /management
          readOnly: true
        {{- end }}
        {{- with .settings.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
      - name: cache
        emptyDir: {}
      - name: tmp
        emptyDir: {}
      {{- if or $kubernetes $identity }}
      - name: certificate
        secret:
          secretName: {{ .Values.kubernetesAPI.certificateSecret }}
          defaultMode: 288 # 0440: readable for the group
      {{- end }}
      {{- if and $identity (not $data) }}
      - name: token # identifies the role to the data controller, and to no other service
        projected:
          defaultMode: 288 # 0440: readable for the group
          sources:
          - serviceAccountToken:
              audience: tko
              expirationSeconds: 3600
              path: token
      {{- end }}
      {{- if and $identity $data .Values.identity.clientCA }}
      - name: client-ca
        secret:
          secretName: {{ .Values.identity.clientCA }}
          items: [{key: ca.crt, path: ca.crt}]
          defaultMode: 288 # 0440: readable for the group
      {{- end }}
      {{- if $agents }}
      - name: agents-ca
        secret:
          secretName: {{ .Values.agents.secret }}
          defaultMode: 288 # 0440: readable for the group
      {{- end }}
      {{- if $awx }}
      - name: awx-secrets # passwords, tokens and CAs of AWX
        secret:
          secretName: {{ .Values.awx.secret }}
          optional: true
          defaultMode: 288 # 0440: readable for the group
      {{- end }}
      {{- if $scheduler }}
      - name: git-secrets # credentials for sites' repositories
        secret:
          secretName: {{ .Values.git.secret }}
          optional: true
          defaultMode: 288 # 0440: readable for the group
      - name: osm-secrets # passwords and CAs of sites that are OSMs
        secret:
          secretName: {{ .Values.osm.secret }}
          optional: true
          defaultMode: 288 # 0440: readable for the group
      - name: kubeconfigs # kubeconfig files of sites' clusters
        {{- if .Values.kubernetesSites.secrets }}
        projected:
          defaultMode: 288 # 0440: readable for the group
          sources:
          {{- range prepend .Values.kubernetesSites.secrets .Values.kubernetesSites.secret | uniq }}
          - secret:
              name: {{ . }}
              optional: true
          {{- end }}
        {{- else }}
        secret:
          secretName: {{ .Values.kubernetesSites.secret }}
          optional: true
          defaultMode: 288 # 0440: readable for the group
        {{- end }}
      {{- end }}
      {{- if $gitops }}
      - name: connections # connection files for Open Source MANO, which repositories name as their connectionFile
        secret:
          secretName: {{ .Values.gitops.connections }}
          optional: true
          defaultMode: 288 # 0440: readable for the group
      {{- end }}
      {{- if $management }}
      - name: management
        configMap:
          name: tko-management
      {{- end }}
      {{- with .settings.volumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: tko-{{ .role }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "tko.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "tko.selector" .role | nindent 6 }}
{{- end }}

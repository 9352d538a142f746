#!/usr/bin/env bash
# Makes the certificate of TKO's Kubernetes API for ten years, for clusters without cert-manager:
# the secret tko-data-tls in TKO's namespace. If the APIService exists, it sets its CA. Run it again
# for a new certificate.
#   deploy/kubernetes/certificates.sh [NAMESPACE]      # tko
set -euo pipefail
namespace=${1:-tko}
for program in openssl kubectl; do
	command -v "$program" >/dev/null || { echo "certificates.sh: install $program" >&2 && exit 1; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
umask 077
key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${key[@]}" -days 3650 -keyout ca.key -out ca.crt -subj /CN=tko-ca 2>/dev/null
openssl req "${key[@]}" -keyout tls.key -out tls.csr -subj "/CN=tko-data.$namespace.svc" 2>/dev/null
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out tls.crt 2>/dev/null \
	-extfile <(echo "subjectAltName=DNS:tko-data.$namespace.svc,DNS:tko-data.$namespace.svc.cluster.local" && echo extendedKeyUsage=serverAuth)
kubectl create secret generic tko-data-tls --namespace "$namespace" --type kubernetes.io/tls \
	--from-file tls.crt --from-file tls.key --from-file ca.crt --dry-run=client --output yaml |
	kubectl apply --server-side --force-conflicts --field-manager tko-certificates --filename -
if kubectl get apiservice v1alpha1.tko.nephio.org >/dev/null 2>&1; then
	kubectl patch apiservice v1alpha1.tko.nephio.org --type merge --field-manager tko-certificates \
		--patch "{\"spec\": {\"caBundle\": \"$(base64 <ca.crt | tr -d '\n')\"}}"
fi

#!/bin/sh
# certificate.sh DIRECTORY HOST: makes an authority (ca.pem) and a certificate that it signs (server.pem, server.key), for 10 years.
# This is for trying out. If you have your own authority, let it sign the last two.
set -eu
cd "$1"
umask 077
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=$2 authority" -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj "/CN=$2" -keyout server.key -out server.csr 2>/dev/null
printf 'subjectAltName=DNS:%s\n' "$2" > server.ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile server.ext -out server.pem 2>/dev/null
rm -f ca.key ca.srl server.csr server.ext
chmod 644 ca.pem server.pem

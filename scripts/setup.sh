#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the system packages of the groups named as arguments, where they are missing.
source "$(dirname "$0")/common.sh"

packages=()
for group in "$@"; do
  case "$group" in
    build) packages+=(g++ cmake ninja-build ccache pkg-config libboost1.81-dev libboost-context1.81-dev nlohmann-json3-dev libfmt-dev
                      libspdlog-dev libcli11-dev prometheus-cpp-dev libxxhash-dev libsodium-dev liburing-dev libedit-dev
                      libgtest-dev libtomlplusplus-dev libcurl4-openssl-dev libssl-dev libsqlite3-dev libpqxx-dev libhiredis-dev zlib1g-dev
                      libjemalloc-dev) ;;
    test) packages+=(python3 python3-pip python3-venv libbenchmark-dev postgresql redis-server openssl iproute2) ;;
    model) packages+=(python3 python3-pip) ;;
    fuzz) packages+=(clang-19 lld-19 libclang-rt-19-dev) ;;
    arm) [[ "$(uname -m)" == aarch64 ]] || packages+=(g++-aarch64-linux-gnu qemu-user-static googletest libfmt-dev) ;;
    # Whoever has a newer one keeps it.
    node) command -v npm >/dev/null || packages+=(nodejs npm) ;;
    lint) packages+=(clang-format-19 clang-tidy-19) ;;
    *) fail "setup.sh: no group of packages is named \"$group\"" ;;
  esac
done

# Debian 12's plain cargo is older than what deps/loci_text needs, its web one is not. One that was installed before an
# update brought a newer one is installed again.
outdated=()
needed_minor="$(sed -nE 's/^rust-version = "1\.([0-9]+)"$/\1/p' deps/loci_text/Cargo.toml)"
cargo_minor() { cargo --version 2>/dev/null | sed -nE 's/^cargo 1\.([0-9]+)\..*/\1/p'; }
new_enough_cargo() { local minor; minor="$(cargo_minor || true)"; [[ -n "$minor" && "$minor" -ge "$needed_minor" ]]; }
[[ " $* " != *" build "* ]] || new_enough_cargo || outdated+=(cargo-web rustc-web)

if ! command -v dpkg-query >/dev/null; then
  note "this is no Debian: install what corresponds to: ${packages[*]} ${outdated[*]+"${outdated[*]}"}"
  exit 0
fi
missing=("${outdated[@]+"${outdated[@]}"}")
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
# A Python of the user's own serves as well as Debian's.
if python3 -m pip --version >/dev/null 2>&1 && python3 -c 'import ensurepip, venv' 2>/dev/null; then
  kept=()
  for package in "${missing[@]+"${missing[@]}"}"; do [[ "$package" == python3* ]] || kept+=("$package"); done
  missing=("${kept[@]+"${kept[@]}"}")
fi
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ "$(id -u)" != 0 ]]; then
  command -v sudo >/dev/null || fail "missing packages and no sudo: run as root: apt-get install -y ${missing[*]}"
  as_root=(sudo)
fi
step "Installing ${#missing[@]} system packages"
note "${missing[*]}"
log="$(mktemp)"
apt_get() { "${as_root[@]+"${as_root[@]}"}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@"; }
# One line that counts on a terminal; elsewhere a line for each hundred steps.
show() {
  if [[ -t 1 ]]; then awk '/^(Get:|Unpacking|Setting up)/ {n++; printf "\r    %d steps ", n; fflush()} END {if (n) print ""}'
  else awk '/^(Get:|Unpacking|Setting up)/ {if (++n % 100 == 0) {printf "    %d steps\n", n; fflush()}}'; fi
}
{ apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"; } 2>&1 | tee "$log" | show ||
  { tail -5 "$log" >&2; fail "apt-get failed (log: $log): mend it, then run make again"; }
hash -r
[[ ${#outdated[@]} == 0 ]] || new_enough_cargo ||
  fail "cargo is 1.$(cargo_minor), but 1.$needed_minor is needed: add bookworm-updates or bookworm-security to apt's sources, or put a newer cargo on the path, then run make again"

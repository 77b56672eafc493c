#!/bin/sh
# deps.sh PACKAGE...: installs the missing packages of Debian 12+ or Ubuntu 24.04+ and prints their names. "msgpack"
# means libmsgpack-c-dev, or libmsgpack-dev on older releases.
set -u
command -v dpkg-query >/dev/null || { echo "make deps knows Debian and Ubuntu only; install: $*" >&2; exit 0; }

is_installed() { dpkg-query -W -f='${Status}\n' "$@" 2>/dev/null | grep -q '^install ok installed'; }

missing=
for p in "$@"; do
  case $p in
  msgpack) is_installed libmsgpack-c-dev libmsgpack-dev || missing="$missing $p" ;;
  *) is_installed "$p" || missing="$missing $p" ;;
  esac
done
[ -z "$missing" ] && exit 0

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq || true
if apt-cache show libmsgpack-c-dev >/dev/null 2>&1; then msgpack=libmsgpack-c-dev; else msgpack=libmsgpack-dev; fi
missing=$(echo "$missing" | sed "s/\bmsgpack\b/$msgpack/")
case $missing in
*nvidia*)
  apt-cache policy nvidia-cuda-toolkit | grep -q 'Candidate: [0-9]' || {
    echo "nvidia-cuda-toolkit is not in the package lists." \
      "Enable the contrib and non-free components in the apt sources first." >&2
    exit 1
  } ;;
esac
echo "installing:$missing"
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null

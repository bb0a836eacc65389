#!/usr/bin/env bash
# Run the fast tests on the Python of another Debian: `bash scripts/test_in_debian.sh trixie` (3.13) or `forky` (3.14).
#
# Needs root and debootstrap. The system is in build/debian, uses the mirror of apt and the settings of pip of this one,
# and is removed afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
suite="$1"
system="$PWD/build/debian/$suite"
command -v debootstrap > /dev/null || { apt-get update --quiet=2; apt-get install --quiet=2 --yes debootstrap; }

mounted=()
leave() {
    for ((at = ${#mounted[@]} - 1; at >= 0; at--)); do umount --lazy "${mounted[at]}"; done
    rm -rf --one-file-system "$system"
}
trap leave EXIT

share() { # FOLDER: the same folder in both systems, mounted once
    if mountpoint --quiet "$system$1"; then return; fi
    mkdir -p "$system$1"
    mount --bind "$1" "$system$1"
    mounted+=("$system$1")
}

mirror="$(apt-get indextargets --format '$(REPO_URI)' | head -n 1)"
rules=(); if [ ! -e "/usr/share/debootstrap/scripts/$suite" ]; then rules=(sid); fi
mkdir -p "$system"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,git,gcc,libc6-dev,python3-dev \
    "$suite" "$system" "$mirror" "${rules[@]}" > "$system.log"

share /proc
share /dev
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf ~/.config/pip/pip.conf ~/.pip/pip.conf; do
    if [ -e "$file" ]; then mkdir -p "$system$(dirname "$file")"; cp --dereference "$file" "$system$file"; fi
done
cp --dereference /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/"
for path in $({ python3 -m pip config list; env | grep '^PIP_'; } | grep --only-matching --extended-regexp '(file://)?/[^ ,'"'"'"]+' | sed 's|^file://||'); do
    if [ -f "$path" ]; then mkdir -p "$system$(dirname "$path")"; cp --dereference "$path" "$system$path"; fi
    if [ -d "$path" ] && [ "$(dirname "$path")" != / ]; then share "$(dirname "$path")"; fi  # an index links to its files
done

data="$(realpath "${PROMPTY_SHARED:-../shared}")"
if [ -d "$data" ]; then share "$data"; fi
mkdir -p "$system/prompty"
git archive HEAD | tar --extract --directory "$system/prompty"
chroot "$system" env HOME="$HOME" PROMPTY_SHARED="$data" bash -euc '
    cd /prompty
    python3 -m venv /venv
    /venv/bin/python -m pip install --quiet --upgrade pip
    /venv/bin/python -m pip install --quiet --group test --editable ".[all]"
    /venv/bin/python --version
    /venv/bin/python -m pytest -n 2 --dist worksteal \
        -m "not (process or database or browser or real or slow or timing or nightly)"
'

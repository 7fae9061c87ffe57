#!/bin/bash
# The guest's process 1: runs one script after another and answers with its exit code and output.
# A line in: NUMBER SECONDS SCRIPT. A line out: NUMBER CODE OUTPUT. Script and output are in base64.
# Code 124: it was not done in time, and was killed.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
export TMPDIR=/run/tmp PYTHONDONTWRITEBYTECODE=1
mkdir -p /dev/pts /dev/shm /run/lock /run/tmp
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mount --make-rshared /
ip link set lo up
modprobe loop
modprobe fuse

port=
for name in /sys/class/virtio-ports/*/name; do
  [[ $(cat "$name") == commands ]] && port=/dev/$(basename "$(dirname "$name")")
done
[[ -n $port ]] || { echo "guest: there is no port for commands"; echo o >/proc/sysrq-trigger; }

exec 3<>"$port"
echo "0 0 $(uname -r | base64 -w0)" >&3
while read -r number seconds script <&3; do
  base64 -d <<<"$script" >/run/script
  timeout --kill-after=5 "$seconds" setsid --wait bash /run/script >/run/output 2>&1 </dev/null 3>&-
  echo "$number $? $(base64 -w0 /run/output)" >&3
done
echo "guest: nobody sends commands any more"
echo o >/proc/sysrq-trigger
sleep 60

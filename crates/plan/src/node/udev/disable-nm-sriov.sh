#!/bin/sh
# Written by vfleet; changes are lost.
# udev asks for an interface ($1), a PF ($2, a PCI address) and ranges of the PF's VFs (0-3 ...): the interface of one of
# those VFs is nothing for NetworkManager, which would give it addresses and set it up. Other VFs are the host's.
device=/sys/class/net/$1/device
pf=$2
physfn=$(readlink "$device/physfn") || exit 0
[ "${physfn##*/}" = "$pf" ] || exit 0
shift 2
for range in "$@"; do
    index=${range%-*}
    while [ "$index" -le "${range#*-}" ]; do
        if [ "$device/physfn/virtfn$index" -ef "$device" ]; then
            echo "NM_UNMANAGED=1"
            exit 0
        fi
        index=$((index + 1))
    done
done

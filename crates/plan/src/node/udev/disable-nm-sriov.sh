#!/bin/sh
# Written by vfleet; changes are lost.
# udev asks for an interface ($1) and a PF ($2, a PCI address): an interface of one of the PF's VFs is nothing for
# NetworkManager, which would give it addresses and set it up.
physfn=$(readlink "/sys/class/net/$1/device/physfn") || exit 0
if [ "${physfn##*/}" = "$2" ]; then
    echo "NM_UNMANAGED=1"
fi

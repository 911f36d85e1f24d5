#!/bin/sh
# Written by vfleet; changes are lost.
# udev asks for the name of a switch port ($1: pf0vf3, or c1pf0vf3): which VF does it stand for?
case "$1" in
*vf*[!0-9]* | *vf) exit 1 ;;
*pf*vf*) echo "VFLEET_VF=${1##*vf}" ;;
*) exit 1 ;;
esac

//! Kernel modules that VFs may need.

/// All modules that a plan may load, by their name in `/sys/module`.
pub const KNOWN_MODULES: [&str; 9] = [
    "vfio",
    "vfio_pci",
    "uio_pci_generic",
    "igb_uio",
    "virtio_vdpa",
    "vhost_vdpa",
    "tun",
    "vhost_net",
    "ib_core",
];

/// Returns the module of a userspace driver.
pub fn of_driver(driver: &str) -> Option<&'static str> {
    match driver {
        "vfio-pci" => Some("vfio_pci"),
        "uio_pci_generic" => Some("uio_pci_generic"),
        "igb_uio" => Some("igb_uio"),
        _ => None,
    }
}

/// Modules that programs in pods often use with VFs. No VF needs them, so a missing one, or a failure to load one, is
/// not reported.
pub(crate) const OPTIONAL_MODULES: [&str; 2] = ["tun", "vhost_net"];

/// Returns how to install a module, for messages.
pub(crate) fn origin(module: &str) -> &'static str {
    match module {
        "igb_uio" => "build and install it from dpdk-kmods",
        _ => {
            "install the package with all modules of the running kernel (linux-modules-extra, kernel-modules-extra)"
        }
    }
}

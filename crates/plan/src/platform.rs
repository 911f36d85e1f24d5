//! Platform that a node runs on.

/// Platform that a node runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// Not known, because no Node object was read.
    #[default]
    Unknown,
    /// Hardware, or a virtual machine without a supported cloud.
    BareMetal,
    /// OpenStack.
    OpenStack,
    /// Amazon Web Services.
    Aws,
}

impl Platform {
    /// Returns the platform that `id`, the `providerID` of a Node such as `aws:///eu-west-1a/i-0123`, names.
    pub fn from_provider_id(id: &str) -> Self {
        let (cloud, _) = id.split_once("://").unwrap_or_default();
        if cloud.eq_ignore_ascii_case("openstack") {
            Self::OpenStack
        } else if cloud.eq_ignore_ascii_case("aws") {
            Self::Aws
        } else {
            Self::BareMetal
        }
    }

    /// Returns whether the cards of the node are lone VFs: their PFs belong to the hypervisor.
    pub const fn has_lone_vfs(self) -> bool {
        matches!(self, Self::OpenStack | Self::Aws)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_platform_is_in_the_provider_id() {
        for (id, expected) in [
            ("openstack:///d8e02d56-2648-49a3-bf97-6be8f1204f38", Platform::OpenStack),
            ("OpenStack://RegionOne/d8e02d56", Platform::OpenStack),
            ("aws:///us-east-1a/i-0123456789abcdef0", Platform::Aws),
            ("kind://docker/aws/openstack", Platform::BareMetal),
            ("", Platform::BareMetal),
            ("aws", Platform::BareMetal),
        ] {
            assert_eq!(Platform::from_provider_id(id), expected, "{id}");
        }
    }

    proptest! {
        #[test]
        fn accepts_any_provider_id(id in "(?s).{0,60}|(aws|OpenStack)://.{0,20}") {
            let is_cloud = ["aws://", "openstack://"].iter().any(|cloud| id.to_ascii_lowercase().starts_with(cloud));
            prop_assert_eq!(Platform::from_provider_id(&id) != Platform::BareMetal, is_cloud);
        }
    }
}

//! An object that may be unreadable, because another version wrote it: it must not blind us to all others.

use std::borrow::Cow;

use kube::api::ObjectMeta;
use kube::core::{PartialObjectMeta, Resource};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// What the API server has sent: the object, or as much of it as can be read.
///
/// The text is kept until the object is read from it. What the client library has for this makes a tree of the whole
/// object first, and a copy of it, for every event of every watch.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Box<Unreadable>>);

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    pub metadata: ObjectMeta,
    pub error: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(match serde_json::from_str(text.get()) {
            Ok(object) => Ok(object),
            Err(error) => Err(Box::new(unreadable(text.get(), &error).map_err(D::Error::custom)?)),
        }))
    }
}

fn unreadable(text: &str, error: &serde_json::Error) -> Result<Unreadable, serde_json::Error> {
    let PartialObjectMeta { metadata, .. } = serde_json::from_str::<PartialObjectMeta>(text)?;
    // Nobody sees the text that the place is in.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let error = error.to_string();
    let error = error.strip_suffix(&place).unwrap_or(&error).to_owned();
    Ok(Unreadable { metadata, error })
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(about: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(about)
    }

    fn group(about: &Self::DynamicType) -> Cow<'_, str> {
        K::group(about)
    }

    fn version(about: &Self::DynamicType) -> Cow<'_, str> {
        K::version(about)
    }

    fn plural(about: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(about)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use kube::core::{ObjectList, WatchEvent};
    use vfleet_api::SriovNetworkPoolConfig;

    use super::*;

    const POOL: &str = r#"{"apiVersion":"sriovnetwork.openshift.io/v1","kind":"SriovNetworkPoolConfig",
        "metadata":{"name":"a","namespace":"n"},"spec":{"priority":7}}"#;

    fn is_read(pool: &Guarded<SriovNetworkPoolConfig>) {
        assert_eq!(pool.name_any(), "a");
        assert_eq!(pool.0.as_ref().unwrap().spec.priority, Some(7));
    }

    /// As the API server sends them: see `kube::Client`.
    #[test]
    fn objects_of_watches_and_lists_are_read() {
        let event = format!(r#"{{"type":"ADDED","object":{POOL}}}"#);
        let WatchEvent::Added(pool) = serde_json::from_str(&event).unwrap() else { panic!("not added") };
        is_read(&pool);
        let list = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{POOL},{POOL}]}}"#);
        let list: ObjectList<Guarded<SriovNetworkPoolConfig>> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items.len(), 2);
        list.items.iter().for_each(is_read);
    }

    #[test]
    fn of_an_unreadable_object_the_name_and_the_reason_are_known() {
        let pool = POOL.replace('7', "\"first\"");
        let pool: Guarded<SriovNetworkPoolConfig> = serde_json::from_str(&pool).unwrap();
        assert_eq!(pool.name_any(), "a");
        let error = pool.0.unwrap_err().error;
        assert!(error.contains("\"first\"") && !error.contains("column"), "{error}");
    }
}

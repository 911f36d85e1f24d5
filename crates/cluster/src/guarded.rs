//! Objects that may not match their Rust type, for example because another version wrote them. One such object must not
//! end the watch of all others.

use std::borrow::Cow;

use kube::api::ObjectMeta;
use kube::core::{PartialObjectMeta, Resource};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Object as received from the API server: parsed, or only its metadata and the error.
///
/// Like `kube::core::DeserializeGuard`, which however builds a `serde_json::Value` of the whole object and copies it
/// for every watch event. This type parses the text directly.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Box<UnreadableObject>>);

/// Object that cannot be parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadableObject {
    pub metadata: ObjectMeta,
    pub error: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(match serde_json::from_str(text.get()) {
            Ok(object) => Ok(object),
            Err(error) => Err(Box::new(parse_metadata(text.get(), &error).map_err(D::Error::custom)?)),
        }))
    }
}

fn parse_metadata(text: &str, error: &serde_json::Error) -> Result<UnreadableObject, serde_json::Error> {
    let PartialObjectMeta { metadata, .. } = serde_json::from_str::<PartialObjectMeta>(text)?;
    // The position is of no use, because users do not see the text.
    let position = format!(" at line {} column {}", error.line(), error.column());
    let error = error.to_string();
    let error = error.strip_suffix(&position).unwrap_or(&error).to_owned();
    Ok(UnreadableObject { metadata, error })
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
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

    fn assert_is_parsed(pool: &Guarded<SriovNetworkPoolConfig>) {
        assert_eq!(pool.name_any(), "a");
        assert_eq!(pool.0.as_ref().unwrap().spec.priority, Some(7));
    }

    #[test]
    fn objects_of_watches_and_lists_are_parsed() {
        let event = format!(r#"{{"type":"ADDED","object":{POOL}}}"#);
        let WatchEvent::Added(pool) = serde_json::from_str(&event).unwrap() else { panic!("not added") };
        assert_is_parsed(&pool);
        let list = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{POOL},{POOL}]}}"#);
        let list: ObjectList<Guarded<SriovNetworkPoolConfig>> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items.len(), 2);
        list.items.iter().for_each(assert_is_parsed);
    }

    #[test]
    fn an_unreadable_object_keeps_its_name_and_its_error() {
        let pool = POOL.replace('7', "\"first\"");
        let pool: Guarded<SriovNetworkPoolConfig> = serde_json::from_str(&pool).unwrap();
        assert_eq!(pool.name_any(), "a");
        let error = pool.0.unwrap_err().error;
        assert!(error.contains("\"first\"") && !error.contains("column"), "{error}");
    }
}

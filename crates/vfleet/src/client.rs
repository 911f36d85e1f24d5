//! The Kubernetes client of all subcommands.
//!
//! Names are looked up by a resolver in Rust: the programs are linked statically, and the C library's look-ups
//! need shared objects that an empty image does not have. See `docs/decisions/0002-static-programs.md`.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use hickory_resolver::TokioResolver;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

/// A client for the cluster that `KUBECONFIG` names, or the one that this process runs in.
pub(crate) async fn connect() -> anyhow::Result<Client> {
    // One provider for the process. It fails only when there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::infer().await.context(
        "no cluster to talk to: set KUBECONFIG to a kubeconfig file, or run in a pod with a service account",
    )?;
    anyhow::ensure!(
        config.proxy_url.is_none(),
        "the kubeconfig asks for a proxy (proxy-url), which is not supported"
    );
    build(&config).with_context(|| format!("cannot talk to the cluster at {}", config.cluster_url))
}

fn build(config: &Config) -> anyhow::Result<Client> {
    let config = &with_roots(config);
    let connector = config
        .rustls_https_connector_with_connector(connector())
        .map_err(|error| with_remedy(error, config))?;
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// Returns `config` with certificate authorities to build a verifier from, where none is asked in the end. The bundle of the
/// machine is read only for a cluster that names no authority of its own; many hosts have none.
fn with_roots(config: &Config) -> Config {
    let mut config = config.clone();
    if config.accept_invalid_certs {
        config.root_cert.get_or_insert_default();
    }
    config
}

fn with_remedy(error: kube::Error, config: &Config) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    if config.root_cert.is_some() {
        return error;
    }
    error.context(
        "the kubeconfig names no certificate authority, and those of this machine cannot be used: set \
         certificate-authority in the kubeconfig, or install the package ca-certificates",
    )
}

type Addresses = std::vec::IntoIter<SocketAddr>;
type LookUp = tower::util::BoxCloneSyncService<Name, Addresses, BoxError>;

fn connector() -> HttpConnector<LookUp> {
    // Needed only for a server that is given by name: without name servers, addresses still work.
    let resolver =
        TokioResolver::builder_tokio().and_then(hickory_resolver::ResolverBuilder::build).map(Arc::new);
    let look_up = tower::service_fn(move |name: Name| {
        let resolver = resolver.clone();
        async move {
            let resolver =
                resolver.map_err(|error| format!("cannot look up {name}: /etc/resolv.conf: {error}"))?;
            let found = resolver.lookup_ip(name.as_str()).await.map_err(BoxError::from)?;
            let addresses: Vec<_> = found.iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok::<_, BoxError>(addresses.into_iter())
        }
    });
    let mut connector = HttpConnector::new_with_resolver(LookUp::new(look_up));
    connector.enforce_http(false);
    connector
}

//! Kubernetes client of all subcommands.
//!
//! Host names are resolved by a resolver in Rust: the programs are linked statically, and the resolver of the C library
//! needs shared objects that an empty image does not have. See `docs/decisions/0002-static-programs.md`.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use hickory_resolver::TokioResolver;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{Client as HttpClient, Error as HttpError};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};
use vfleet_host::format_error_chain;

/// Returns a client for the cluster of `KUBECONFIG`, or for the cluster that this process runs in.
pub(crate) async fn connect() -> anyhow::Result<Client> {
    // One provider for the process. This fails only if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::infer().await.context(
        "no cluster is configured: set KUBECONFIG to a kubeconfig file, or run in a pod with a service account",
    )?;
    anyhow::ensure!(
        config.proxy_url.is_none(),
        "the kubeconfig sets proxy-url, which is not supported: use a kubeconfig without a proxy"
    );
    build(&config)
        .with_context(|| format!("cannot create a client for the cluster at {}", config.cluster_url))
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
    // Without user name and password, which the URL may contain.
    let host = config.cluster_url.authority().and_then(|authority| authority.as_str().rsplit('@').next());
    let scheme = config.cluster_url.scheme_str().unwrap_or("https");
    let server = format!("{scheme}://{}", host.unwrap_or_default());
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(move |error| with_server(error, &server))
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// Adds the address of the API server and the cause to a connection error, which has neither in its text.
fn with_server(error: HttpError, server: &str) -> BoxError {
    if error.is_connect() {
        let cause = error.source().map_or_else(|| error.to_string(), format_error_chain);
        format!("cannot connect to the API server at {server}: {cause}").into()
    } else {
        error.into()
    }
}

/// Returns `config` with a certificate authority, if the server's certificate is not verified: otherwise the CA bundle
/// of the machine would be read, which many hosts do not have.
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
        "the kubeconfig has no certificate authority, and the CA bundle of this machine cannot be read: set \
         certificate-authority in the kubeconfig, or install the package ca-certificates",
    )
}

type Addresses = std::vec::IntoIter<SocketAddr>;
type LookUp = tower::util::BoxCloneSyncService<Name, Addresses, BoxError>;

fn connector() -> HttpConnector<LookUp> {
    // Needed only for a server with a host name: IP addresses work without name servers.
    let resolver =
        TokioResolver::builder_tokio().and_then(hickory_resolver::ResolverBuilder::build).map(Arc::new);
    let look_up = tower::service_fn(move |name: Name| {
        let resolver = resolver.clone();
        async move {
            let resolver =
                resolver.map_err(|error| format!("cannot resolve {name}: /etc/resolv.conf: {error}"))?;
            let found = resolver.lookup_ip(name.as_str()).await.map_err(BoxError::from)?;
            let addresses: Vec<_> = found.iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok::<_, BoxError>(addresses.into_iter())
        }
    });
    let mut connector = HttpConnector::new_with_resolver(LookUp::new(look_up));
    connector.enforce_http(false);
    connector
}

//! A receiver, ready to be sent to: secrets and certificates read, a client that goes where it may.
//! Made anew when the configuration changes, and when an attempt says that something in it is
//! wrong: a renewed key or certificate is then taken up.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ipnet::IpNet;
use reqwest::{Client, redirect};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::classify::{Answer, Failure};
use super::guard::{self, Denied, GuardedResolver};
use super::request::{Outgoing, Secrets};
use crate::config::{ReceiverConfig, Secret, WatchdogConfig};

/// Bytes of an answer that are read; nothing beyond is of use.
const MOST_ANSWER: usize = 64 << 10;

/// What one can send to.
#[derive(Debug, Clone)]
pub struct Target {
    client: Client,
    allowed: Vec<IpNet>,
    /// What goes into requests.
    pub secrets: Secrets,
}

/// What a connection is made with.
struct Connection<'a> {
    allow_cidrs: &'a [String],
    ca_file: Option<&'a Path>,
    certificate: Option<(&'a Path, &'a Path)>,
    timeout: Duration,
    connect_timeout: Duration,
}

impl Target {
    /// Reads everything `config` names.
    ///
    /// # Errors
    /// The key and what is wrong with it, without a secret.
    pub fn build(config: &ReceiverConfig) -> Result<Self, (String, String)> {
        let read = |source: crate::config::secret::SecretSource<'_>| {
            source.read().map_err(|message| (source.set_key(), message))
        };
        let default_url = config.kind.default_url().map(Secret::new);
        let url = read(config.url_source())?.or(default_url);
        let mut headers = Vec::new();
        for (group, name, source) in config.header_sources() {
            let value = source
                .read()
                .map_err(|message| (format!("{group}.{name}"), message))?;
            headers.extend(value.map(|value| (name.to_owned(), value)));
        }
        let signing = [config.secret_source(), config.previous_secret_source()];
        let mut keys = Vec::new();
        for source in signing {
            keys.extend(read(source)?);
        }
        let secrets = Secrets {
            kind: config.kind,
            url: url.ok_or_else(|| ("url".to_owned(), "is needed".to_owned()))?,
            signing: keys,
            previous_until: config.previous_until,
            token: read(config.token_source())?,
            routing_key: read(config.routing_key_source())?,
            headers,
        };
        let connection = Connection {
            allow_cidrs: &config.allow_cidrs,
            ca_file: config.ca_file.as_deref(),
            certificate: config.cert_file.as_deref().zip(config.key_file.as_deref()),
            timeout: config.timeout.0,
            connect_timeout: config.connect_timeout.0,
        };
        Self::connect(secrets, &connection)
    }

    /// Where a sign of life goes; `None`: nowhere.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn watchdog(config: &WatchdogConfig) -> Result<Option<Self>, (String, String)> {
        let source = config.url_source();
        let Some(url) = source
            .read()
            .map_err(|message| (source.set_key(), message))?
        else {
            return Ok(None);
        };
        let secrets = Secrets {
            kind: crate::config::ReceiverKind::Template,
            url,
            signing: Vec::new(),
            previous_until: None,
            token: None,
            routing_key: None,
            headers: Vec::new(),
        };
        let connection = Connection {
            allow_cidrs: &config.allow_cidrs,
            ca_file: config.ca_file.as_deref(),
            certificate: None,
            timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
        };
        Self::connect(secrets, &connection).map(Some)
    }

    fn connect(secrets: Secrets, with: &Connection<'_>) -> Result<Self, (String, String)> {
        let mut allowed = Vec::new();
        for cidr in with.allow_cidrs {
            let network = cidr
                .parse()
                .map_err(|_| ("allow_cidrs".to_owned(), "is not a network".to_owned()))?;
            allowed.push(network);
        }
        let client = Client::builder()
            .tls_backend_preconfigured(tls(with)?)
            .dns_resolver(GuardedResolver::new(allowed.clone()))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never())
            .timeout(with.timeout)
            .connect_timeout(with.connect_timeout)
            .pool_idle_timeout(Duration::from_secs(30))
            .build()
            .map_err(|error| ("url".to_owned(), error.without_url().to_string()))?;
        Ok(Self {
            client,
            allowed,
            secrets,
        })
    }

    /// Networks that are not public but allowed.
    pub fn allowed(&self) -> &[IpNet] {
        &self.allowed
    }

    /// Makes the request, once.
    ///
    /// # Errors
    /// Why there is no answer, without a secret.
    pub async fn send(&self, request: Outgoing) -> Result<Answer, Failure> {
        let host = request.url.host_str().unwrap_or_default();
        if let Some(address) = guard::literal(host) {
            guard::check(address, &self.allowed)
                .map_err(|denied| Failure::Denied(denied.to_string()))?;
        }
        let mut builder = self.client.post(request.url).body(request.body);
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        self.answer(builder).await
    }

    /// Asks for the target's own address.
    ///
    /// # Errors
    /// Likewise.
    pub async fn get(&self) -> Result<Answer, Failure> {
        let url = reqwest::Url::parse(self.secrets.url.expose())
            .map_err(|_| Failure::Setup("the url is not an address".into()))?;
        if let Some(address) = guard::literal(url.host_str().unwrap_or_default()) {
            guard::check(address, &self.allowed)
                .map_err(|denied| Failure::Denied(denied.to_string()))?;
        }
        self.answer(self.client.get(url)).await
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<Answer, Failure> {
        let mut response = request.send().await.map_err(|error| failure(&error))?;
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(reqwest::header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let mut body = Vec::new();
        // The status has been heard; what is said beside it may break off.
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = MOST_ANSWER - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() == MOST_ANSWER {
                break;
            }
        }
        Ok(Answer {
            status,
            retry_after,
            body,
        })
    }
}

/// The system's authorities, read once: there are some hundred and fifty.
fn system_roots() -> &'static RootCertStore {
    static READ: OnceLock<RootCertStore> = OnceLock::new();
    READ.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let native = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(native.certs);
        if added == 0 {
            tracing::warn!("The system has no certificate authorities: install ca-certificates, or name a ca_file for each receiver");
        }
        roots
    })
}

/// The system's authorities and those of `ca_file`, and the client's certificate.
fn tls(with: &Connection<'_>) -> Result<ClientConfig, (String, String)> {
    let mut roots = system_roots().clone();
    if let Some(path) = with.ca_file {
        for certificate in certificates("ca_file", path)? {
            roots
                .add(certificate)
                .map_err(|error| file("ca_file", path, error))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ("url".to_owned(), error.to_string()))?
        .with_root_certificates(roots);
    let Some((cert, key)) = with.certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates("cert_file", cert)?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| file("key_file", key, error))?;
    builder
        .with_client_auth_cert(chain, private)
        .map_err(|error| file("cert_file", cert, format!("does not fit its key: {error}")))
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, (String, String)> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| file(key, path, error))?;
    let chain: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|error| file(key, path, error))?;
    if chain.is_empty() {
        return Err(file(key, path, "holds no PEM certificate"));
    }
    Ok(chain)
}

fn file(key: &str, path: &Path, error: impl std::fmt::Display) -> (String, String) {
    (key.to_owned(), format!("{}: {error}", path.display()))
}

/// What kind of failure the client's error is. Its own words repeat the address, so only those of
/// its causes are used.
fn failure(error: &reqwest::Error) -> Failure {
    let mut words = Vec::new();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(this) = cause {
        if let Some(denied) = this.downcast_ref::<Denied>() {
            return Failure::Denied(denied.to_string());
        }
        if let Some(certificate) = certificate_error(this) {
            return Failure::Certificate(certificate);
        }
        // A wrapped client error would name the address again.
        if this.downcast_ref::<reqwest::Error>().is_none() {
            let text = this.to_string();
            if !words.contains(&text) {
                words.push(text);
            }
        }
        cause = this.source();
    }
    let why = words.join(": ");
    if error.is_builder() {
        Failure::Setup(why)
    } else if error.is_connect() {
        Failure::Connect(if why.is_empty() {
            "cannot connect".into()
        } else {
            why
        })
    } else if error.is_timeout() {
        Failure::Lost("time ran out".into())
    } else {
        Failure::Lost(if why.is_empty() {
            "the connection broke".into()
        } else {
            why
        })
    }
}

/// The TLS layer puts its errors inside those of the operating system's kind.
fn certificate_error(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(rustls::Error::InvalidCertificate(reason)) = error.downcast_ref::<rustls::Error>() {
        return Some(match reason {
            rustls::CertificateError::Expired | rustls::CertificateError::ExpiredContext { .. } => {
                "expired".into()
            }
            rustls::CertificateError::NotValidForName
            | rustls::CertificateError::NotValidForNameContext { .. } => "not for this name".into(),
            rustls::CertificateError::UnknownIssuer => {
                "from an unknown authority: name it in ca_file".into()
            }
            other => format!("{other:?}").chars().take(200).collect(),
        });
    }
    let io = error.downcast_ref::<std::io::Error>()?;
    certificate_error(io.get_ref()?)
}

//! TLS 1.3: who shows what, and whom they believe.
//!
//! Without certificates the accepting end shows a key that it made at its start. Nobody believes the key: what both
//! ends prove is that they know the token, over something that only these two have (RFC 8446 §7.5, RFC 9266), so that
//! nobody can stand between them. With certificates the connecting end checks the accepting end's against authorities
//! that it was given, and the other way round where the accepting end was given some.

use std::path::Path;
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::error::Error;

/// Bytes that proofs are bound to.
pub const EXPORTED_BYTES: usize = 32;

/// Files of an end that uses certificates.
#[derive(Clone, Debug, Default)]
pub struct Certificates<'a> {
    /// What this end shows: its certificate and those up to an authority (PEM), and its private key.
    pub own: Option<(&'a Path, &'a Path)>,
    /// Whom this end believes (PEM).
    pub authorities: Option<&'a Path>,
}

/// How one end encrypts; it may accept or connect.
#[derive(Clone, Debug)]
pub struct Encryption {
    server: Option<Arc<ServerConfig>>,
    client: Arc<ClientConfig>,
    /// The accepting end proves itself by a certificate.
    proves_peer: bool,
    /// The connecting end has to.
    demands_certificate: bool,
}

fn wrong(what: &str) -> impl FnOnce(rustls::Error) -> Error {
    let what = what.to_owned();
    move |error| Error::Encryption(format!("{what}: {error}"))
}

fn unreadable(path: &Path) -> impl FnOnce(rustls::pki_types::pem::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::Encryption(format!("{path}: {error}"))
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).map_err(unreadable(path))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(unreadable(path))?;
    if all.is_empty() {
        let path = path.display();
        return Err(Error::Encryption(format!(
            "{path}: no certificate in it (PEM is expected)"
        )));
    }
    Ok(all)
}

impl Encryption {
    /// With certificates; without any, a key that is made here.
    pub fn new(files: &Certificates<'_>) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let own = files
            .own
            .map(|(certificate, key)| {
                let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?;
                Ok::<_, Error>((chain(certificate)?, private))
            })
            .transpose()?;
        let authorities = files
            .authorities
            .map(|path| {
                let mut roots = RootCertStore::empty();
                for certificate in chain(path)? {
                    roots.add(certificate).map_err(wrong("--ca"))?;
                }
                Ok::<_, Error>(Arc::new(roots))
            })
            .transpose()?;
        Ok(Self {
            server: server(&provider, own.as_ref(), authorities.as_ref())?,
            client: client(&provider, own.as_ref(), authorities.as_ref())?,
            proves_peer: authorities.is_some(),
            demands_certificate: authorities.is_some() && own.is_some(),
        })
    }

    /// Whether the connecting end knows who accepted, without a token.
    pub fn proves_acceptor(&self) -> bool {
        self.proves_peer
    }

    /// Whether the accepting end knows who connected, without a token.
    pub fn proves_connector(&self) -> bool {
        self.demands_certificate
    }

    /// For a connection that was accepted.
    pub fn accept(&self) -> Result<ServerConnection, Error> {
        let config = self.server.as_ref().ok_or_else(|| {
            Error::Encryption("an end that listens needs --cert and --key beside --ca".to_owned())
        })?;
        ServerConnection::new(Arc::clone(config)).map_err(wrong("TLS"))
    }

    /// For a connection to a host of this name.
    pub fn connect(&self, host: &str) -> Result<ClientConnection, Error> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::Encryption(format!("{host:?} is no name of a host")))?;
        ClientConnection::new(Arc::clone(&self.client), name).map_err(wrong("TLS"))
    }
}

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn server(
    provider: &Arc<CryptoProvider>,
    own: Option<&Own>,
    authorities: Option<&Arc<RootCertStore>>,
) -> Result<Option<Arc<ServerConfig>>, Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(wrong("TLS"))?;
    let mut config = match (own, authorities) {
        (Some((chain, key)), None) => builder
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(wrong("--cert and --key"))?,
        (Some((chain, key)), Some(roots)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(
                Arc::clone(roots),
                Arc::clone(provider),
            )
            .build()
            .map_err(|error| Error::Encryption(format!("--ca: {error}")))?;
            builder
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain.clone(), key.clone_key())
                .map_err(wrong("--cert and --key"))?
        }
        // It connects, and shows nothing.
        (None, Some(_)) => return Ok(None),
        (None, None) => builder.with_no_client_auth().with_cert_resolver(Arc::new(
            AlwaysResolvesServerRawPublicKeys::new(raw_key(provider)?),
        )),
    };
    // A session is a handful of connections made at once: tickets would not be used.
    config.send_tls13_tickets = 0;
    Ok(Some(Arc::new(config)))
}

fn client(
    provider: &Arc<CryptoProvider>,
    own: Option<&Own>,
    authorities: Option<&Arc<RootCertStore>>,
) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(wrong("TLS"))?
        .dangerous();
    let builder = match authorities {
        Some(roots) => builder.with_custom_certificate_verifier(
            WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
                .build()
                .map_err(|error| Error::Encryption(format!("--ca: {error}")))?,
        ),
        None => builder.with_custom_certificate_verifier(Arc::new(AnyKey(
            provider.signature_verification_algorithms,
        ))),
    };
    let config = match own {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(wrong("--cert and --key"))?,
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// A key that nobody has seen before (RFC 7250).
fn raw_key(provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
    let no_key = || Error::Encryption("no key could be made".to_owned());
    let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| no_key())?;
    let key = PrivatePkcs8KeyDer::from(pair.as_ref().to_vec());
    let key = provider
        .key_provider
        .load_private_key(key.into())
        .map_err(wrong("TLS"))?;
    let public = key.public_key().ok_or_else(no_key)?;
    let public = CertificateDer::from(public.to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

/// Takes any key of which the peer has the private half: the token's proof says whose it is.
#[derive(Debug)]
struct AnyKey(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::PeerIncompatible(
            rustls::PeerIncompatible::Tls12NotOffered,
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

//! Requests to an agent of others, in the binding of its card.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, TE};
use hyper::{Method, Request, Uri};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sealbus::new_conversation_id;
use sealbus_manifest::neighbours::NeighbourEntry;
use sealbus_seal::Timestamp;
use sealbus_web::trust::CertificateFileError;
use sealbus_web::{Client, MayReach, Server, WebError, reach, trust, whole};
use serde_json::{Value, json};

use super::answer::Told;
use super::asker::{Asker, Tokens};
use super::card::{Card, LONGEST_CARD, ProtocolBinding, parse, place};
use super::error::RemoteError;
use super::signature::{
    CardSignatureError, LONGEST_KEYS, SignedCard, Signers, is_signed, published_at,
};
use super::stream::{Answer, AnswerForm, AnswerStream};
use crate::extensions;
use crate::frames::framed;
use crate::grpc::SERVICE;
use crate::proto;

/// How long a card may take, and an answer that does not wait for an agent's work.
const SHORT: Duration = Duration::from_secs(30);
/// How long an answer may take that waits for an agent's work.
const LONG: Duration = Duration::from_secs(600);
/// Longest key, in bytes.
const LONGEST_KEY: usize = 16 << 10;

/// A neighbour cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file with certificates or a key.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// The manifest is checked before.
    #[error("{0} is no address")]
    Address(String),
}

/// A neighbour whose card was checked.
#[derive(Debug)]
pub(super) struct KnownNeighbour {
    pub(super) card: Card,
    /// The server that gave the card, by what proof it is that one, and who signed the card.
    pub(super) proof: String,
}

/// An agent of others.
pub(super) struct Remote {
    http: Client,
    http2: Client,
    /// Those whose signature of the card counts.
    signers: Option<Signers>,
    /// A card without such a signature is refused.
    is_signed: bool,
    card_at: Uri,
    hosts: Vec<String>,
    key: Option<(HeaderName, HeaderValue)>,
    tokens: Option<Tokens>,
    known: Mutex<Result<Arc<KnownNeighbour>, String>>,
}

impl Remote {
    pub(super) fn new(entry: &NeighbourEntry) -> Result<Self, SetupError> {
        let card_at = place(&entry.url);
        let card_at: Uri = card_at.parse().map_err(|_| SetupError::Address(card_at))?;
        // An operator who writes a number means it. A name leads wherever its owner wants.
        let is_meant = entry.private || entry.is_of_this_machine();
        let may_reach: MayReach = if is_meant {
            Arc::new(|_| Ok(()))
        } else {
            Arc::new(|address| {
                let refused = reach::open_internet(address);
                refused.map_err(|why| format!("{why}; write private = true if that is right"))
            })
        };
        let key = match &entry.key_file {
            Some(file) => Some(key(file.as_ref(), entry.header.as_deref())?),
            None => None,
        };
        let tls = trust::client(entry.trust.as_deref().map(AsRef::as_ref))?;
        let signers = entry.signer.as_deref().map(AsRef::as_ref);
        let signers = signers.map(Signers::read).transpose()?;
        Ok(Self {
            http: Client::new(tls.clone(), may_reach.clone()),
            http2: Client::http2(tls, may_reach),
            is_signed: entry.signed || signers.is_some(),
            signers,
            card_at,
            hosts: entry.hosts.clone(),
            key,
            tokens: entry.token_audience.clone().map(Tokens::new),
            known: Mutex::new(Err("its card has not been read yet".to_owned())),
        })
    }

    /// The host of its card.
    pub(super) fn host(&self) -> &str {
        self.card_at.host().unwrap_or_default()
    }

    /// The neighbour as its card tells of it, or why nothing is known.
    pub(super) fn known(&self) -> Result<Arc<KnownNeighbour>, String> {
        self.known.lock().clone()
    }

    /// Reads the card anew. A neighbour that cannot be reached stays as it was known; one whose card is not believed any
    /// more is not asked any more.
    pub(super) async fn look(&self) -> Result<Arc<KnownNeighbour>, RemoteError> {
        let looked = self.card().await.map(Arc::new);
        let mut known = self.known.lock();
        match &looked {
            Ok(found) => *known = Ok(found.clone()),
            Err(error) if error.is_break() && known.is_ok() => {}
            Err(error) => *known = Err(error.to_string()),
        }
        looked
    }

    async fn card(&self) -> Result<KnownNeighbour, RemoteError> {
        let (body, server) = self.file(&self.card_at, LONGEST_CARD, "a card").await?;
        let (card, signed) = self.signed(parse(&body)?).await?;
        let card = Card::read(card, &self.card_at, &self.hosts)?;
        let proof = format!("{server}; {signed}");
        Ok(KnownNeighbour { card, proof })
    }

    /// A file of the neighbour's server, and the server.
    async fn file(
        &self,
        at: &Uri,
        most: usize,
        what: &'static str,
    ) -> Result<(Bytes, String), RemoteError> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = at.clone();
        let answer = self.http.ask(request, SHORT).await?;
        let status = answer.status();
        if status.is_redirection() {
            return Err(RemoteError::Redirected(status.as_u16()));
        }
        if !status.is_success() {
            return Err(RemoteError::NoFile(status.as_u16(), what));
        }
        let server = answer.extensions().get::<Server>().map(Server::to_string);
        let body = whole(answer.into_body(), most, SHORT).await?;
        Ok((body, server.unwrap_or_default()))
    }

    /// The card as it is to be read, and by whom it is signed, in words.
    async fn signed(&self, card: Value) -> Result<(Value, String), RemoteError> {
        let now = Timestamp::from(SystemTime::now());
        let checked = match &self.signers {
            Some(signers) => Ok((signers.verify(&card, now), "")),
            None => self.signed_by_server(&card, now).await,
        };
        match checked {
            Ok((Ok(SignedCard { card, signer }), whose)) => {
                Ok((card, format!("card signed by {signer}{whose}")))
            }
            Ok((Err(why), _)) if self.is_signed => Err(why.into()),
            Err(error) if self.is_signed => Err(error),
            Ok((Err(_), _)) if !is_signed(&card) => Ok((card, "card not signed".to_owned())),
            Ok((Err(why), _)) => Ok((card, format!("card signed, but not verified: {why}"))),
            Err(error) => Ok((card, format!("card signed, but not verified: {error}"))),
        }
    }

    /// Checks a card by the key that its own server publishes.
    async fn signed_by_server(
        &self,
        card: &Value,
        now: Timestamp,
    ) -> Result<(Result<SignedCard, CardSignatureError>, &'static str), RemoteError> {
        let Some(at) = published_at(card, &self.card_at) else {
            let why = match is_signed(card) {
                true => CardSignatureError::NoKeys("name its `signer`".to_owned()),
                false => CardSignatureError::Unsigned,
            };
            return Ok((Err(why), ""));
        };
        let (keys, _) = self.file(&at, LONGEST_KEYS, "its keys").await?;
        let signers = Signers::keys(&keys);
        let signers = signers.map_err(|error| CardSignatureError::NoKeys(error.to_string()));
        let checked = signers.and_then(|signers| signers.verify(card, now));
        Ok((checked, ", which its server publishes"))
    }

    /// Sends a message. The answer comes as a stream if the card promises one.
    pub(super) async fn send(
        &self,
        known: &KnownNeighbour,
        message: Value,
        asker: &Asker,
    ) -> Result<AnswerStream, RemoteError> {
        if known.card.streams {
            let params = json!({"message": message});
            let answer = self.call(known, AskedOperation::Stream, "", params, LONG, asker);
            return AnswerStream::open(answer.await?).await;
        }
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        let answer = self.call(known, AskedOperation::Send, "", params, LONG, asker);
        let answer = answer.await?;
        Ok(AnswerStream::of(Told::read(answer.result().await?)?))
    }

    /// The task as it is now.
    pub(super) async fn get(
        &self,
        known: &KnownNeighbour,
        task: &str,
        asker: &Asker,
    ) -> Result<Told, RemoteError> {
        let params = json!({ "id": task });
        let answer = self.call(known, AskedOperation::Get, task, params, SHORT, asker);
        Ok(Told::task(answer.await?.result().await?)?)
    }

    /// Ends the task.
    pub(super) async fn cancel(
        &self,
        known: &KnownNeighbour,
        task: &str,
        asker: &Asker,
    ) -> Result<(), RemoteError> {
        let params = json!({ "id": task });
        let answer = self.call(known, AskedOperation::Cancel, task, params, SHORT, asker);
        answer.await?.result().await.map(drop)
    }

    /// Follows the task again.
    pub(super) async fn subscribe(
        &self,
        known: &KnownNeighbour,
        task: &str,
        asker: &Asker,
    ) -> Result<AnswerStream, RemoteError> {
        let params = json!({ "id": task });
        let answer = self.call(known, AskedOperation::Subscribe, task, params, SHORT, asker);
        AnswerStream::open(answer.await?).await
    }

    async fn call(
        &self,
        known: &KnownNeighbour,
        operation: AskedOperation,
        task: &str,
        mut params: Value,
        time: Duration,
        asker: &Asker,
    ) -> Result<Answer, RemoteError> {
        let interface = &known.card.interface;
        let (method, path, name) = operation.names();
        if let Some(tenant) = interface
            .tenant
            .as_deref()
            .filter(|_| interface.binding != ProtocolBinding::Rest)
        {
            params["tenant"] = tenant.into();
        }
        let (method, url, body, form) = match interface.binding {
            ProtocolBinding::JsonRpc => {
                let id = new_conversation_id();
                let body = json!({"jsonrpc": "2.0", "id": id, "method": name, "params": params});
                let body = Bytes::from(body.to_string());
                let url = interface.url.clone();
                (Method::POST, url, body, AnswerForm::JsonRpc(id))
            }
            ProtocolBinding::Grpc => {
                let operation = proto::ServiceMethod::named(name).ok_or(WebError::Address)?;
                let body = framed(&operation.write_request(&params));
                let url = format!("{}{SERVICE}{name}", interface.url);
                (Method::POST, url, body, AnswerForm::Grpc(operation))
            }
            ProtocolBinding::Rest => {
                let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
                let tenant = interface.tenant.iter();
                let tenant: String = tenant.map(|it| format!("/{}", escaped(it))).collect();
                let url = format!(
                    "{}{tenant}{}",
                    interface.url,
                    path.replace("{id}", &escaped(task))
                );
                let body = (method == Method::POST).then(|| params.to_string().into());
                (method, url, body.unwrap_or_default(), AnswerForm::Rest)
            }
        };
        let is_grpc = matches!(form, AnswerForm::Grpc(_));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = url.parse().map_err(|_| WebError::Address)?;
        let headers = request.headers_mut();
        let kind = match is_grpc {
            true => "application/grpc",
            false => "application/json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if is_grpc {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        } else {
            let accept = match operation.is_stream() {
                true => "text/event-stream",
                false => kind,
            };
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        headers.insert("a2a-version", HeaderValue::from_static("1.0"));
        if let Some(extensions) = extensions::activating(&known.card.extensions) {
            headers.insert(extensions::HEADER, extensions);
        }
        if let Some((name, value)) = &self.key {
            headers.insert(name.clone(), value.clone());
        }
        if let Some(tokens) = &self.tokens {
            headers.insert(AUTHORIZATION, tokens.header(asker).await?);
        }
        let http = if is_grpc { &self.http2 } else { &self.http };
        let response = http.ask(request, time).await?;
        if response.status().is_redirection() {
            return Err(RemoteError::Redirected(response.status().as_u16()));
        }
        Ok(Answer {
            response,
            form,
            time,
        })
    }
}

#[derive(Clone, Copy)]
enum AskedOperation {
    Send,
    Stream,
    Get,
    Cancel,
    Subscribe,
}

impl AskedOperation {
    /// The method and the path of REST, and the method of JSON-RPC.
    fn names(self) -> (Method, &'static str, &'static str) {
        match self {
            Self::Send => (Method::POST, "/message:send", "SendMessage"),
            Self::Stream => (Method::POST, "/message:stream", "SendStreamingMessage"),
            Self::Get => (Method::GET, "/tasks/{id}", "GetTask"),
            Self::Cancel => (Method::POST, "/tasks/{id}:cancel", "CancelTask"),
            Self::Subscribe => (Method::POST, "/tasks/{id}:subscribe", "SubscribeToTask"),
        }
    }

    fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Subscribe)
    }
}

/// The header with the key of a neighbour.
fn key(
    file: &std::path::Path,
    header: Option<&str>,
) -> Result<(HeaderName, HeaderValue), SetupError> {
    let failed = |problem: &dyn std::fmt::Display| CertificateFileError::new(file, problem);
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST_KEY {
        return Err(failed(&"it holds no key").into());
    }
    let (name, value) = match header {
        Some(name) => (name.parse().ok(), text.to_owned()),
        None => (Some(AUTHORIZATION), format!("Bearer {text}")),
    };
    let value = HeaderValue::try_from(value).ok();
    let (Some(name), Some(mut value)) = (name, value) else {
        return Err(failed(&"its key cannot be sent in a header").into());
    };
    value.set_sensitive(true);
    Ok((name, value))
}

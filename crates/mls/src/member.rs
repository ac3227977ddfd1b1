//! A subscriber's side: its offer to join groups, and its place in the group of a publisher.

use std::sync::Arc;

use mls_rs::extension::MlsExtension;
use mls_rs::extension::recommended::LastResortKeyPackageExt;
use mls_rs::group::{CommitEffect, ReceivedMessage};
use mls_rs::{Client, ExtensionList, Group as MlsGroup, MlsMessage};
use sealbus_seal::encryption::{EncryptionKey, EncryptionKeyId};
use sealbus_seal::{CLOCK_SKEW, Credential, Identity, Timestamp, Trust, VerifiedIdentity};

use crate::credential::{self, Config};
use crate::error::GroupError;
use crate::once::Once;
use crate::packages::Packages;
use crate::welcome;

/// The publisher makes the group, so it is the first member.
const PUBLISHER: u32 = 0;

/// An agent that offers to join the groups of publishers.
pub struct Invitee {
    client: Client<Config>,
    packages: Packages,
}

impl Invitee {
    /// An agent without former offers.
    pub fn new(credential: &Arc<Credential>, until: Timestamp, now: Timestamp) -> Self {
        Self::with(credential, Packages::default(), until, now)
    }

    fn with(
        credential: &Arc<Credential>,
        packages: Packages,
        until: Timestamp,
        now: Timestamp,
    ) -> Self {
        let lifetime = until.since(now) + CLOCK_SKEW;
        let client = credential::client(credential, packages.clone(), lifetime);
        Self { client, packages }
    }

    /// The same agent with a new certificate, which ends at `until`. Offers under former certificates stay good until
    /// they expire.
    #[must_use]
    pub fn renewed(&self, credential: &Arc<Credential>, until: Timestamp, now: Timestamp) -> Self {
        self.packages.forget(now);
        Self::with(credential, self.packages.clone(), until, now)
    }

    /// A new key package, for all publishers. It is good as long as the certificate is.
    ///
    /// # Errors
    /// If the cryptographic library makes no key.
    pub fn offer(&self, now: Timestamp) -> Result<Vec<u8>, GroupError> {
        let last_resort = LastResortKeyPackageExt.into_extension();
        let mut extensions = ExtensionList::new();
        extensions.set(last_resort.map_err(mls_rs::error::MlsError::from)?);
        // The clocks of publishers may be behind.
        let time = Some(credential::time(now.minus(CLOCK_SKEW)));
        let package =
            self.client
                .generate_key_package_message(extensions, ExtensionList::new(), time)?;
        Ok(package.to_bytes()?)
    }
}

/// An agent's place in the group of a publisher.
pub struct Member {
    mls: MlsGroup<Config>,
    publisher: VerifiedIdentity,
}

impl Member {
    /// Joins the group of `publisher` by its Welcome. `find` has the keys for sealed messages of this process.
    ///
    /// # Errors
    /// If the Welcome is for others, or the group is not that of the publisher.
    pub fn join(
        invitee: &Invitee,
        welcome: &[u8],
        publisher: &Identity,
        find: impl Fn(EncryptionKeyId) -> Option<Arc<EncryptionKey>>,
        trust: &Trust,
        now: Timestamp,
    ) -> Result<Self, GroupError> {
        let welcome = welcome::open(welcome, find)?;
        let welcome = MlsMessage::from_bytes(&welcome)?;
        // The publisher has checked the other members: it decides who reads what it writes.
        let (mls, _) = invitee.client.join_group(None, &welcome, None)?;
        let foreign = || GroupError::AnotherPublisher(publisher.clone());
        let first = mls.member_at_index(PUBLISHER).ok_or_else(foreign)?;
        let verified = credential::verify(&first.signing_identity, trust, now)?;
        match verified.identity() == publisher {
            true => Ok(Self {
                mls,
                publisher: verified,
            }),
            false => Err(foreign()),
        }
    }

    /// The publisher, with the certificate under which it made the group.
    pub fn publisher(&self) -> &VerifiedIdentity {
        &self.publisher
    }

    /// The name of the group.
    pub fn name(&self) -> &[u8] {
        self.mls.group_id()
    }

    /// The number of changes that led to the present secrets. Members with the same number read the same messages.
    pub fn epoch(&self) -> u64 {
        self.mls.current_epoch()
    }

    fn foreign(&self) -> GroupError {
        GroupError::AnotherPublisher(self.publisher.identity().clone())
    }

    /// Takes a change of the group.
    ///
    /// # Errors
    /// If it is not the next one, or the agent was removed: the agent then opens nothing more.
    pub fn follow(&mut self, commit: &[u8]) -> Result<(), GroupError> {
        let commit = MlsMessage::from_bytes(commit)?;
        match self.mls.process_incoming_message(commit)? {
            ReceivedMessage::Commit(commit) if commit.committer == PUBLISHER => match commit.effect
            {
                CommitEffect::NewEpoch(_) => Ok(()),
                _ => Err(GroupError::Removed),
            },
            _ => Err(self.foreign()),
        }
    }

    /// Opens a message, which must be later than all that were opened before, and not older than the last change. The
    /// message must come as its author sent it: after one that was changed on its way, the right one may not open any more.
    ///
    /// # Errors
    /// If it was changed, repeated, sealed for others, or has other words around it.
    pub fn open(&mut self, associated: &[u8], sealed: &[u8]) -> Result<Vec<u8>, GroupError> {
        let malformed = || GroupError::Malformed("a message");
        let (length, rest) = sealed.split_first_chunk().ok_or_else(malformed)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let carrier = rest.get(..length).ok_or_else(malformed)?;
        let text = sealed.len() - rest.len() + length;
        let carrier = MlsMessage::from_bytes(carrier)?;
        if carrier.epoch() != Some(self.epoch()) {
            return Err(GroupError::AnotherEpoch);
        }
        match self.mls.process_incoming_message(carrier)? {
            ReceivedMessage::ApplicationMessage(message) if message.sender_index == PUBLISHER => {
                if message.authenticated_data != associated {
                    return Err(GroupError::AnotherContext);
                }
                Once::received(message.data())
                    .and_then(|secret| secret.open(sealed, text))
                    .ok_or_else(malformed)
            }
            _ => Err(self.foreign()),
        }
    }
}

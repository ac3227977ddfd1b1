//! A publisher's side: the group of those who read one of its channels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use mls_rs::external_client::ExternalClient;
use mls_rs::group::CommitOutput;
use mls_rs::{ExtensionList, Group as MlsGroup, MlsMessage};
use sealbus_seal::encryption::{EncryptionPublicKey, LONGEST_KEY_PACKAGE};
use sealbus_seal::{Credential, Identity, Timestamp, Trust, VerifiedIdentity};

use crate::credential::{self, Config};
use crate::crypto::Provider;
use crate::error::GroupError;
use crate::limits::MOST_MEMBERS;
use crate::once::Once;
use crate::packages::Packages;
use crate::welcome;

/// After so many messages the secrets change. A member that was left out of more messages in a row could not go on
/// (mls-rs steps over 1024).
const MOST_MESSAGES: u32 = 1000;
/// How long the secrets of a group are used at most, and the group itself.
const LONGEST_EPOCH: Duration = Duration::from_secs(10 * 60);
const LONGEST_LIFE: Duration = Duration::from_secs(6 * 3600);

/// An agent that may join a group: its key package was checked.
#[derive(Clone)]
pub struct Candidate {
    package: MlsMessage,
    key: EncryptionPublicKey,
    verified: VerifiedIdentity,
}

impl Candidate {
    /// Checks the key package that `agent` offers, with the platform's CA and the deny lists. `key`: the agent's key for
    /// sealed messages, which was checked before.
    ///
    /// # Errors
    /// Why the agent cannot join.
    pub fn verify(
        package: &[u8],
        key: EncryptionPublicKey,
        agent: &Identity,
        trust: &Trust,
        now: Timestamp,
    ) -> Result<Self, GroupError> {
        if package.len() > LONGEST_KEY_PACKAGE {
            return Err(GroupError::TooLong {
                what: "a key package",
                length: package.len(),
                limit: LONGEST_KEY_PACKAGE,
            });
        }
        let package = MlsMessage::from_bytes(package)?;
        let checked = ExternalClient::builder()
            .crypto_provider(Provider::default())
            .identity_provider(credential::identities())
            .build()
            .validate_key_package(package.clone(), Some(credential::time(now)))?;
        let verified = credential::verify(checked.signing_identity(), trust, now)?;
        match verified.identity() == agent {
            true => Ok(Self {
                package,
                key,
                verified,
            }),
            false => Err(GroupError::AnotherAgent {
                wanted: agent.clone(),
                found: verified.identity().clone(),
            }),
        }
    }

    /// The certified agent.
    pub fn verified(&self) -> &VerifiedIdentity {
        &self.verified
    }
}

/// The news of a change, which each member needs before the next message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// For the members that stay.
    pub commit: Option<Vec<u8>>,
    /// For the new ones.
    pub welcome: Option<Vec<u8>>,
}

/// The group of those who read a channel of one publisher. The publisher alone changes it, and alone writes.
pub struct Group {
    mls: MlsGroup<Config>,
    members: BTreeMap<Identity, VerifiedIdentity>,
    credential: VerifiedIdentity,
    /// How many messages were sealed since the last change.
    messages: u32,
    changed: Timestamp,
    made: Timestamp,
}

impl Group {
    /// The length of a group's name in bytes.
    pub const NAME: usize = 16;

    /// A new group without members.
    ///
    /// # Errors
    /// If the publisher's certificate is not good.
    pub fn new(
        publisher: &Arc<Credential>,
        trust: &Trust,
        now: Timestamp,
    ) -> Result<Self, GroupError> {
        let mut name = [0; Self::NAME];
        rand::fill(&mut name).map_err(|_| GroupError::NoSecret)?;
        let mls = credential::client(publisher, Packages::default(), Duration::ZERO)
            .create_group_with_id(
                name.to_vec(),
                ExtensionList::default(),
                ExtensionList::default(),
                Some(credential::time(now)),
            )?;
        Ok(Self {
            mls,
            members: BTreeMap::new(),
            credential: trust.verify(publisher.chain(), now)?,
            messages: 0,
            changed: now,
            made: now,
        })
    }

    /// The group's name.
    pub fn name(&self) -> &[u8] {
        self.mls.group_id()
    }

    /// Whether the group goes on: the publisher's certificate is good, and the group is not old.
    pub fn goes_on(&self, trust: &Trust, now: Timestamp) -> bool {
        trust.check(&self.credential, now).is_ok() && now.since(self.made) < LONGEST_LIFE
    }

    /// The members, each with the certificate under which it joined.
    pub fn members(&self) -> impl Iterator<Item = (&Identity, &VerifiedIdentity)> {
        self.members.iter()
    }

    /// Whether the agent is a member.
    pub fn has(&self, agent: &Identity) -> bool {
        self.members.contains_key(agent)
    }

    /// Whether the secrets must change before the next message.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.messages >= MOST_MESSAGES || now.since(self.changed) >= LONGEST_EPOCH
    }

    /// Removes members and lets others join, in one step. A member that joins again has lost its state. The secrets
    /// change, even if the members stay the same.
    ///
    /// # Errors
    /// If there would be too many members. The group is then as it was.
    pub fn change(
        &mut self,
        leaving: &[Identity],
        joining: &[Candidate],
        now: Timestamp,
    ) -> Result<Change, GroupError> {
        let mut members = self.members.clone();
        let mut gone = Vec::new();
        for agent in leaving
            .iter()
            .chain(joining.iter().map(|it| it.verified.identity()))
        {
            if members.remove(agent).is_some() {
                let member = self.mls.member_with_identity(&credential::name(agent))?;
                gone.push(member.index);
            }
        }
        let someone_stays = !members.is_empty();
        for candidate in joining {
            let identity = candidate.verified.identity().clone();
            members.insert(identity, candidate.verified.clone());
        }
        if members.len() > MOST_MEMBERS {
            return Err(GroupError::TooManyMembers(members.len()));
        }
        let mut commit = self.mls.commit_builder().commit_time(credential::time(now));
        for index in gone {
            commit = commit.remove_member(index)?;
        }
        for candidate in joining {
            commit = commit.add_member(candidate.package.clone())?;
        }
        let output = commit.build()?;
        let prepared = self.prepared(&output, joining);
        match prepared {
            Ok((commit, welcome)) => {
                self.mls.apply_pending_commit()?;
                self.members = members;
                self.messages = 0;
                self.changed = now;
                Ok(Change {
                    commit: someone_stays.then_some(commit),
                    welcome,
                })
            }
            Err(error) => {
                self.mls.clear_pending_commit();
                Err(error)
            }
        }
    }

    fn prepared(
        &self,
        output: &CommitOutput,
        joining: &[Candidate],
    ) -> Result<(Vec<u8>, Option<Vec<u8>>), GroupError> {
        let commit = output.commit_message().to_bytes()?;
        let Some(plain) = output.welcome_messages().first() else {
            return Ok((commit, None));
        };
        // The agents of a process share one key.
        let keys: BTreeMap<_, _> = joining
            .iter()
            .map(|it| (*it.key.id().as_bytes(), &it.key))
            .collect();
        let keys: Vec<_> = keys.into_values().collect();
        let welcome = welcome::seal(&plain.to_bytes()?, &keys)?;
        Ok((commit, Some(welcome)))
    }

    /// Seals the next message to all members. `associated` is not encrypted, and the receivers must have the same.
    ///
    /// MLS signs what it encrypts, in software that is slow for long messages. It therefore carries a secret, and the secret
    /// encrypts the message.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn seal(&mut self, associated: &[u8], message: &[u8]) -> Result<Vec<u8>, GroupError> {
        let secret = Once::random()?;
        let carrier = self
            .mls
            .encrypt_application_message(secret.as_bytes(), associated.to_vec())?
            .to_bytes()?;
        self.messages += 1;
        let length =
            u16::try_from(carrier.len()).map_err(|_| GroupError::Malformed("a carrier"))?;
        let text = size_of_val(&length) + carrier.len();
        let mut sealed = Vec::with_capacity(text + message.len() + Once::ADDED);
        sealed.extend_from_slice(&length.to_be_bytes());
        sealed.extend_from_slice(&carrier);
        sealed.extend_from_slice(message);
        secret.seal(&mut sealed, text)?;
        Ok(sealed)
    }
}

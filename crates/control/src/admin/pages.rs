//! Lists that come in pages, so that no answer grows with the platform.
//!
//! Items that come or go between two pages may be missing or on the list. All others are on it once.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::{AgentStatus, CertificateStatus, NodeStatus, ServiceStatus, ask};
use crate::ask::Ask;
use crate::{Fault, FaultCode};

/// The most items that a [`Listing`] asks for at a time.
const ITEMS: u32 = 1000;

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The end of the previous page; `None` for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most items on the page; `None` for all that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

impl Page {
    /// The range of places after the previous page, in a list that is sorted by place.
    pub fn places(&self) -> (Bound<&str>, Bound<&str>) {
        let start = self
            .after
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        (start, Bound::Unbounded)
    }

    /// The end of the previous page, if there is one, as `read` interprets it.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`] if `read` does not accept it.
    pub fn start<'p, T>(&'p self, read: impl Fn(&'p str) -> Option<T>) -> Result<Option<T>, Fault> {
        let no_end = |end| Fault::new(FaultCode::BadRequest, format!("{end} is no end of a page"));
        let after = self.after.as_deref();
        after
            .map(|end| read(end).ok_or_else(|| no_end(end)))
            .transpose()
    }

    /// The most items, at least one.
    pub fn most(&self) -> usize {
        self.limit.map_or(usize::MAX, |limit| limit.max(1) as usize)
    }

    /// Cuts the items that follow the previous page to one page. Also returns the page's end, if there are more.
    pub fn cut<T>(
        &self,
        following: impl Iterator<Item = T>,
        place: impl Fn(&T) -> String,
    ) -> (Vec<T>, Option<String>) {
        let most = self.most();
        let mut items: Vec<T> = following.take(most.saturating_add(1)).collect();
        let is_cut = items.len() > most;
        items.truncate(most);
        let end = items.last().filter(|_| is_cut).map(place);
        (items, end)
    }
}

impl Default for ask::Nodes {
    fn default() -> Self {
        let page = Page::default();
        Self { page }
    }
}

impl Default for ask::Agents {
    fn default() -> Self {
        let page = Page::default();
        Self { page }
    }
}

/// An answer with a page of a list.
pub trait Listed {
    /// An item of the list.
    type Item: std::fmt::Debug;

    /// The items, and the end of the page if there are more.
    fn into_parts(self) -> (Vec<Self::Item>, Option<String>);
}

/// A request for a page of a list.
pub trait List: Ask<Answer: Listed> + Clone + std::fmt::Debug {
    /// The page.
    fn page(&mut self) -> &mut Page;
}

macro_rules! lists {
    ($( $(#[doc = $text:literal])+ $ask:ident -> $answer:ident { $items:ident: $item:ty } )+) => { $(
        $(#[doc = $text])+
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $answer {
            /// The items, in the order of the list.
            pub $items: Vec<$item>,
            /// The end of the page, if there are more.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub end: Option<String>,
        }

        impl From<(Vec<$item>, Option<String>)> for $answer {
            fn from(($items, end): (Vec<$item>, Option<String>)) -> Self {
                Self { $items, end }
            }
        }

        impl Listed for $answer {
            type Item = $item;

            fn into_parts(self) -> (Vec<$item>, Option<String>) {
                (self.$items, self.end)
            }
        }

        impl List for ask::$ask {
            fn page(&mut self) -> &mut Page {
                &mut self.page
            }
        }
    )+ };
}

lists! {
    /// Nodes, by name.
    Nodes -> NodesPage { nodes: NodeStatus }
    /// Agents, by name.
    Agents -> AgentsPage { agents: AgentStatus }
    /// Certificates, in the order they were issued.
    Certificates -> CertificatesPage { certificates: CertificateStatus }
    /// Services, in the order in which their agents registered.
    DfSearch -> ServicesPage { services: ServiceStatus }
}

/// A list that is requested page by page.
#[derive(Debug)]
pub struct Listing<L: List> {
    next: Option<L>,
    items: Vec<<L::Answer as Listed>::Item>,
}

impl<L: List> Listing<L> {
    /// A request for the whole list. The page in `request` does not matter.
    pub fn of(mut request: L) -> Self {
        *request.page() = Page {
            after: None,
            limit: Some(ITEMS),
        };
        Self {
            next: Some(request),
            items: Vec::new(),
        }
    }

    /// The request for the next page, if there is one.
    pub fn next_page(&self) -> Option<L> {
        self.next.clone()
    }

    /// Adds the next page.
    pub fn take(&mut self, answer: L::Answer) {
        let (items, end) = answer.into_parts();
        self.items.extend(items);
        match (end, &mut self.next) {
            (Some(end), Some(next)) => next.page().after = Some(end),
            _ => self.next = None,
        }
    }

    /// The items of all pages.
    pub fn into_items(self) -> Vec<<L::Answer as Listed>::Item> {
        self.items
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::NodeState;
    use super::*;

    proptest! {
        #[test]
        fn pages_of_any_length_make_the_list(
            names in proptest::collection::btree_set("[a-c]{1,3}", 0..30),
            limit in proptest::option::of(0_u32..7),
        ) {
            let mut page = Page { after: None, limit };
            let mut found = Vec::new();
            loop {
                let following = names.range::<str, _>(page.places());
                let (items, end) = page.cut(following, ToString::to_string);
                prop_assert!(items.len() <= page.most());
                found.extend(items.into_iter().cloned());
                match end {
                    Some(end) => page.after = Some(end),
                    None => break,
                }
            }
            prop_assert_eq!(found, names.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_list_is_asked_for_page_by_page() {
        let all: BTreeSet<String> = (0..2 * ITEMS + 1)
            .map(|number| format!("{number:05}"))
            .collect();
        let mut listing = Listing::of(ask::Nodes {
            page: Page::default(),
        });
        let mut answers = 0;
        while let Some(request) = listing.next_page() {
            answers += 1;
            let names = all.range::<str, _>(request.page.places());
            let (names, end) = request.page.cut(names, ToString::to_string);
            let nodes = names.into_iter().map(|name| NodeStatus {
                name: name.clone(),
                state: NodeState::Alive,
                address: String::new(),
                host: String::new(),
                processors: 1,
                isolation: None,
                processes: 0,
                agents: 0,
                heard: 0,
            });
            listing.take((nodes.collect(), end).into());
        }
        let listed = listing.into_items();
        assert_eq!((listed.len(), answers), (all.len(), 3));
        assert!(listed.iter().map(|node| &node.name).eq(&all));
    }
}

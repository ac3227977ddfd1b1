//! The other processes, by their index.

use super::peer::Peer;

/// The other processes, sorted by index. New processes have the highest index, so they come last. Each frame looks up
/// its process several times, which would be slow in a tree.
#[derive(Default)]
pub(super) struct Peers(Vec<(u32, Box<Peer>)>);

impl Peers {
    fn place(&self, index: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&index, |(index, _)| *index)
    }

    pub(super) fn get(&self, index: u32) -> Option<&Peer> {
        let place = self.place(index).ok()?;
        self.0.get(place).map(|(_, peer)| &**peer)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Peer> {
        let place = self.place(index).ok()?;
        self.0.get_mut(place).map(|(_, peer)| &mut **peer)
    }

    pub(super) fn insert(&mut self, index: u32, peer: Peer) {
        let entry = (index, Box::new(peer));
        match self.place(index) {
            Ok(place) => self.0[place] = entry,
            Err(place) => self.0.insert(place, entry),
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        if let Ok(place) = self.place(index) {
            self.0.remove(place);
        }
    }

    pub(super) fn indexes(&self) -> Vec<u32> {
        self.0.iter().map(|(index, _)| *index).collect()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter().map(|(_, peer)| &**peer)
    }
}

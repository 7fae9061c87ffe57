#pragma once
// A std::map with a hash beside it: gone through in the order of its keys, and asked for one of them at the
// cost of a hash. For maps of ten thousand nodes, which are asked a hundred thousand times a second. An entry
// stays where it is until it is erased. Not thread-safe; nothing fails.

#include <cstddef>
#include <functional>
#include <map>
#include <unordered_set>
#include <utility>

namespace lunkeeper::fencing {

template <class Key, class Value>
class IndexedMap {
  using Map = std::map<Key, Value>;

 public:
  using iterator = typename Map::iterator;
  using const_iterator = typename Map::const_iterator;

  IndexedMap() = default;
  IndexedMap(const IndexedMap&) = delete;  // the hash points into the map
  IndexedMap& operator=(const IndexedMap&) = delete;

  iterator begin() { return map_.begin(); }
  iterator end() { return map_.end(); }
  const_iterator begin() const { return map_.begin(); }
  const_iterator end() const { return map_.end(); }
  size_t size() const { return map_.size(); }

  iterator find(const Key& key) {
    const auto found = index_.find(key);
    return found == index_.end() ? map_.end() : *found;
  }
  const_iterator find(const Key& key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? map_.end() : const_iterator(*found);
  }
  bool contains(const Key& key) const { return index_.contains(key); }
  // As of std::map, it throws where there is none.
  const Value& at(const Key& key) const { return map_.at(key); }
  iterator lower_bound(const Key& key) { return map_.lower_bound(key); }
  const_iterator lower_bound(const Key& key) const { return map_.lower_bound(key); }

  Value& operator[](const Key& key) {
    if (const auto found = index_.find(key); found != index_.end()) return (*found)->second;
    const auto made = map_.try_emplace(key).first;
    index_.insert(made);
    return made->second;
  }
  void erase(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    const auto entry = *found;
    index_.erase(found);
    map_.erase(entry);
  }

 private:
  struct ByKey {
    using is_transparent = void;
    static const Key& KeyOf(const Key& key) { return key; }
    static const Key& KeyOf(const iterator& entry) { return entry->first; }
    size_t operator()(const auto& of) const { return std::hash<Key>()(KeyOf(of)); }
    bool operator()(const auto& a, const auto& b) const { return KeyOf(a) == KeyOf(b); }
  };

  Map map_;
  std::unordered_set<iterator, ByKey, ByKey> index_;
};

}  // namespace lunkeeper::fencing

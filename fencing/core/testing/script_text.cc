#include "fencing/core/testing/script_text.h"

#include <algorithm>
#include <stdexcept>

namespace lunkeeper::fencing {
namespace {

std::vector<LabelHash> HashLabels(const std::vector<std::string>& texts) {
  std::vector<LabelHash> words;
  for (const auto& text : texts) words.push_back(HashLabel(text));
  return words;
}

// Values that are shared cannot be changed in place.
template <class T, class Change>
void ChangeShared(Shared<T>& shared, const Change& change) {
  T value = *shared;
  change(value);
  shared = Shared<T>(std::move(value));
}

}  // namespace

std::string NextWord(std::istringstream& words) {
  std::string word;
  words >> word;
  return word;
}

Span ReadSpan(const std::string& seconds) {
  return Span::OfMilliseconds(static_cast<int64_t>(std::stod(seconds) * 1000 + 0.5));
}

std::pair<ArrayId, VolumeId> Volume(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) throw std::runtime_error("not ARRAY/VOLUME: " + text);
  return {ArrayId(text.substr(0, slash)), VolumeId(text.substr(slash + 1))};
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

Label ReadLabel(const std::string& text) {
  const auto equals = std::min(text.find('='), text.size());
  return {HashLabel(text.substr(0, equals)), HashLabel(equals == text.size() ? "" : text.substr(equals + 1))};
}

Taint ReadTaint(const std::string& text) {
  const auto parts = Split(text, ':');
  const auto label = ReadLabel(parts.at(0));
  return {label.key, label.value, parts.at(1) == "NoExecute" ? Effect::kNoExecute : Effect::kNoSchedule};
}

Requirements ReadTerm(const std::string& text) {
  Requirements term;
  for (const auto& each : Split(text, '+')) {
    const auto parts = Split(each, ':');
    term.push_back({HashLabel(parts.at(0)), OperatorOf(parts.at(1)), {}});
    if (term.back().op == Operator::kUnknown) throw std::runtime_error("no such op: " + each);
    if (parts.size() > 2) term.back().values = HashLabels(Split(parts[2]));
  }
  return term;
}

Resources ReadResources(const std::string& text) {
  const auto parts = Split(text, '/');
  return {1000 * std::stoi(parts.at(0)), std::stoi(parts.at(1))};
}

void ReadScheduling(const std::string& word, std::istringstream& words, Pod& pod) {
  if (word == "asks") pod.asks = ReadResources(NextWord(words));
  if (word == "labelled")
    ChangeShared(pod.labels, [&](Labels& labels) { labels.push_back(ReadLabel(NextWord(words))); });
  if (word == "volumes-at") {
    Scheduling place;
    place.terms.push_back(ReadTerm(NextWord(words)));
    pod.places.push_back(Shared<Scheduling>(std::move(place)));
  }
  ChangeShared(pod.scheduling, [&](Scheduling& asked) {
    if (word == "fits")
      asked.selector.push_back({HashLabel(kNameLabel), Operator::kIn, HashLabels(Split(NextWord(words)))});
    if (word == "apart") asked.anti_affinity.push_back(HashLabel(NextWord(words)));
    if (word == "affinity") asked.terms.push_back(ReadTerm(NextWord(words)));
    if (word == "beside") asked.beside = ReadTerm(NextWord(words));
    if (word == "spread") asked.spread.push_back({ReadTerm(NextWord(words)), 1});
    if (word != "selects" && word != "tolerates") return;
    const auto label = ReadLabel(NextWord(words));
    if (word == "selects") asked.selector.push_back({label.key, Operator::kIn, {label.value}});
    if (word == "tolerates") asked.tolerations.push_back({label.key, label.value, std::nullopt});
  });
}

}  // namespace lunkeeper::fencing

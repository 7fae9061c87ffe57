// Two parts. EntryReader builds the entries while the text is parsed, by SAX events: a parser that returns a
// whole document has forgotten the line of each value, and an error without a line is of little use in a file
// that an operator wrote. ArraysFileImpl reads the file again every second and keeps the connections of
// entries that did not change: a new connection would cut off calls that wait for a volume.
//
// A file that is wrong changes nothing. That includes a certificate and a key that do not match: they are
// read one after the other, and Kubernetes may replace both in between. The next read finds them whole. At
// the start there is nothing to stay: the array of wrong TLS files is away then, and the others are served.
#include "plugin/arrays_config.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

using nlohmann::json;

constexpr absl::Duration kReadInterval = absl::Seconds(1);
constexpr absl::Duration kCheckTimeout = absl::Seconds(1);
constexpr size_t kLongestFile = 1 << 20;
constexpr size_t kLongestName = 32;  // as the agent's --name

// The place in the text that the parser has reached.
struct Position {
  size_t line = 1;
  bool at_line_start = true;
};

// Counts lines while the parser goes through the text, which it does once and forwards.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    position_->at_line_start = *at_ == '\n';
    if (position_->at_line_start) ++position_->line;
    ++at_;
    return *this;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return !(a == b); }

 private:
  const char* at_;
  Position* position_;
};

absl::Status CheckArrayName(const std::string& value) {
  const bool plain = value.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
  if (plain && !value.empty() && value.size() <= kLongestName) return absl::OkStatus();
  return absl::InvalidArgumentError("\"name\": want 1 to 32 of a-z, 0-9 and -");
}

absl::Status CheckAddress(const std::string& value) {
  const auto address = ParseHostPort(value);
  const bool fine = address && !address->host.empty() && address->port != 0;
  return fine ? absl::OkStatus() : absl::InvalidArgumentError("\"address\": want host:port");
}

// Receives nlohmann's events. `depth_` says where in the document one arrives: 1 in the top object, 2 in the
// list, 3 in an array's object. Returning false ends the parse; status_ says why.
class EntryReader final : public nlohmann::json_sax<json> {
 public:
  explicit EntryReader(const Position* position) : position_(*position) {}

  absl::StatusOr<std::vector<ArrayEntry>> TakeResult() {
    RETURN_IF_ERROR(status_);
    if (entries_.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("line ", LineNumber(), ": \"arrays\": want one at least"));
    // In an order that does not depend on the file's, so that lists of volumes go on after an edit.
    std::sort(entries_.begin(), entries_.end(),
              [](const ArrayEntry& a, const ArrayEntry& b) { return a.remote.name < b.remote.name; });
    return entries_;
  }

  bool start_object(std::size_t) override {
    ++depth_;
    if (depth_ == kTop || depth_ == kEntry) return true;
    return FailHere(depth_ == kTop + 1 ? "\"arrays\": want a list" : "want a text here, and no object");
  }
  bool end_object() override { return --depth_ != kEntry - 1 || EndEntry(); }
  bool start_array(std::size_t) override {
    ++depth_;
    if (depth_ == kTop + 1 || (depth_ == kList && key_ == "address")) return true;
    return FailHere(depth_ == kTop ? "want an object with \"arrays\"" : "want no list here");
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  // Keys that are not known are refused: a misspelt "default" would otherwise be found out much later.
  bool key(std::string& key) override {
    key_ = key;
    // A duplicate key is an error: JSON leaves its meaning open, and one of the two would be ignored.
    if (depth_ == kTop) return (key == "arrays" && !seen_arrays_) ? (seen_arrays_ = true) : FailKey("arrays");
    if (!keys_.insert(key).second) return FailHere(absl::StrCat("\"", key, "\": it is there twice"));
    const bool known = key == "default" || key == "address" || TextFields().count(key) != 0;
    return known || FailKey("name, address, serverName, cert, key, ca and default");
  }
  bool string(std::string& value) override {
    if ((depth_ != kEntry && depth_ != kList) || key_ == "default") return FailValue();
    if (const absl::Status fine = CheckText(key_, value); !fine.ok()) return FailHere(fine.message());
    if (key_ == "address") return AddAddress(value);
    *TextFields().at(key_) = value;
    return true;
  }
  bool boolean(bool value) override {
    if (depth_ != kEntry || key_ != "default") return FailValue();
    entry_.is_default = value;
    return true;
  }
  bool null() override { return FailValue(); }
  bool number_integer(json::number_integer_t) override { return FailValue(); }
  bool number_unsigned(json::number_unsigned_t) override { return FailValue(); }
  bool number_float(json::number_float_t, const std::string&) override { return FailValue(); }
  bool binary(json::binary_t&) override { return FailValue(); }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    const std::string what = error.what();
    return FailHere(absl::StrCat("no JSON: ", what.substr(std::min(what.find("syntax error"), what.size()))));
  }

 private:
  // The list between them is 2; kList is one in an array's object.
  static constexpr int kTop = 1, kEntry = 3, kList = 4;

  // The parser reads one character past a token, which may be the line's end.
  size_t LineNumber() const {
    return position_.line - (position_.at_line_start && position_.line > 1 ? 1 : 0);
  }

  bool FailHere(const absl::string_view why) {
    status_ = absl::InvalidArgumentError(absl::StrCat("line ", LineNumber(), ": ", why));
    return false;
  }
  bool FailKey(const char* known) {
    return FailHere(absl::StrCat("\"", key_.substr(0, 64), "\": unknown, or there twice; there ",
                                 depth_ == kTop ? "is " : "are ", known));
  }
  bool FailValue() {
    if (depth_ == 0) return FailHere("want an object with \"arrays\"");
    if (depth_ == kTop) return FailHere("\"arrays\": want a list");
    if (depth_ != kEntry && depth_ != kList) return FailHere("want an array's object here");
    return FailHere(absl::StrCat("\"", key_, "\": want ", key_ == "default" ? "true or false" : "a text"));
  }

  // The fields of an entry that are texts, by their keys in the file.
  std::map<std::string, std::string*> TextFields() {
    RemoteArrayOptions& remote = entry_.remote;
    return {{"name", &remote.name},
            {"serverName", &remote.server_name},
            {"cert", &remote.tls.certificate},
            {"key", &remote.tls.key},
            {"ca", &remote.tls.ca}};
  }

  // The same one twice would be asked twice.
  bool AddAddress(const std::string& value) {
    std::vector<std::string>& addresses = entry_.remote.addresses;
    if (std::ranges::find(addresses, value) != addresses.end())
      return FailHere(absl::StrCat("\"address\": ", value, " is there twice"));
    addresses.push_back(value);
    return true;
  }

  static absl::Status CheckText(const std::string& key, const std::string& value) {
    if (key == "name") return CheckArrayName(value);
    if (key == "address") return CheckAddress(value);
    if (key == "serverName" || absl::StartsWith(value, "/")) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\": want an absolute path"));
  }

  // An array's object ends: it must be complete, and not contradict those before it.
  bool EndEntry() {
    for (const auto& [key, value] : TextFields()) {
      if (value->empty() && key != "serverName")
        return FailHere(absl::StrCat("the array that ends here has no \"", key, "\""));
    }
    if (entry_.remote.addresses.empty()) return FailHere("the array that ends here has no \"address\"");
    for (const ArrayEntry& other : entries_) {
      if (other.remote.name == entry_.remote.name)
        return FailHere(absl::StrCat("array ", entry_.remote.name, " is there twice"));
      if (other.is_default && entry_.is_default)
        return FailHere(
            absl::StrCat("arrays ", other.remote.name, " and ", entry_.remote.name, " are both the default"));
    }
    entry_.line = LineNumber();
    entries_.push_back(std::exchange(entry_, {}));
    keys_.clear();
    return true;
  }

  const Position& position_;
  int depth_ = 0;
  bool seen_arrays_ = false;
  std::string key_;
  std::set<std::string> keys_;  // of this entry
  ArrayEntry entry_;
  std::vector<ArrayEntry> entries_;
  absl::Status status_;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::string text(kLongestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || (file.fail() && !file.eof())) return absl::FailedPreconditionError("it cannot be read");
  if (text.size() > kLongestFile) return absl::InvalidArgumentError("it has more than 1 MiB");
  return text;
}

class ArraysFileImpl final : public ArraysFile {
 public:
  explicit ArraysFileImpl(std::string path) : path_(std::move(path)) {}

  // Starts the thread that reads the file again every second.
  void StartWatching() {
    watch_.emplace(kReadInterval, [this] { Reload().IgnoreError(); });
  }

  std::vector<NamedArray> ListArrays() override {
    absl::MutexLock lock(&mutex_);
    std::vector<NamedArray> all;
    for (const ArrayMember& member : members_)
      all.push_back({member.entry.remote.name, member.array, member.entry.is_default});
    return all;
  }

  absl::Status CheckServing() override {
    absl::Status last;
    // One array that serves is enough to be ready: with another down, most volumes still work.
    for (const auto& [name, array] : ListConnections()) {
      last = array->CheckServing(kCheckTimeout);
      if (last.ok()) return last;
    }
    return last;
  }

  std::vector<ArrayGateway> AskGateways() override {
    std::vector<ArrayGateway> gateways;
    for (const auto& [name, array] : ListConnections()) {
      const auto state = array->AskGateway(kCheckTimeout);
      if (!state.ok() || *state)
        gateways.push_back({name, state.value_or(std::nullopt).value_or(GatewayState())});
    }
    return gateways;
  }

  bool IsInForce() const override {
    absl::MutexLock lock(&mutex_);
    return problem_.empty();
  }

  std::vector<std::string> ListCertificates() const override {
    absl::MutexLock lock(&mutex_);
    std::vector<std::string> paths;
    for (const ArrayMember& member : members_) {
      const TlsFiles& tls = member.entry.remote.tls;
      paths.insert(paths.end(), {tls.certificate, tls.ca});
    }
    return paths;
  }

  absl::Status Reload() override {
    // The mutex of the members is not held while the file is read and TLS files are checked: All() must not
    // wait for a slow disk.
    absl::MutexLock one_at_a_time(&reload_mutex_);
    const absl::StatusOr<std::string> text = ReadFile(path_);
    {
      absl::MutexLock lock(&mutex_);
      // With a problem, the same text is tried again: a TLS file that it names may be right by now.
      if (text.ok() && *text == text_ && problem_.empty()) return absl::OkStatus();
    }
    absl::StatusOr<std::vector<ArrayMember>> members = text.ok() ? ParseMembers(*text) : text.status();
    return TakeOver(text.ok() ? *text : "", std::move(members));
  }

 private:
  struct ArrayMember {
    ArrayEntry entry;
    std::shared_ptr<RemoteArray> array;
    absl::Status tls = {};  // what is wrong with its files
  };

  // By name.
  std::map<std::string, std::shared_ptr<RemoteArray>> ListConnections() const {
    absl::MutexLock lock(&mutex_);
    std::map<std::string, std::shared_ptr<RemoteArray>> arrays;
    for (const ArrayMember& member : members_) arrays[member.entry.remote.name] = member.array;
    return arrays;
  }

  std::shared_ptr<RemoteArray> FindExisting(const RemoteArrayOptions& remote) const {
    absl::MutexLock lock(&mutex_);
    for (const ArrayMember& member : members_) {
      if (member.entry.remote == remote && member.tls.ok()) return member.array;
    }
    return nullptr;
  }

  absl::StatusOr<std::vector<ArrayMember>> ParseMembers(const std::string& text) const {
    ASSIGN_OR_RETURN(std::vector<ArrayEntry> entries, ParseArrays(text));
    std::vector<ArrayMember> members;
    for (ArrayEntry& entry : entries) {
      std::shared_ptr<RemoteArray> array = FindExisting(entry.remote);
      absl::Status tls;
      if (array == nullptr) {
        absl::StatusOr<std::unique_ptr<RemoteArray>> made = MakeRemoteArray(entry.remote);
        if (!made.ok())
          tls = absl::Status(made.status().code(),
                             absl::StrCat("line ", entry.line, ": array ", entry.remote.name, ": ",
                                          made.status().message()));
        if (!tls.ok() && !ListConnections().empty()) return tls;
        array = made.ok() ? *std::move(made) : MakeUncheckedRemoteArray(entry.remote);
      }
      members.push_back({std::move(entry), std::move(array), std::move(tls)});
    }
    return members;
  }

  absl::Status TakeOver(const std::string& text, absl::StatusOr<std::vector<ArrayMember>> members) {
    absl::MutexLock lock(&mutex_);
    if (!members.ok()) {
      const std::string problem = absl::StrCat("arrays file ", path_, ": ", members.status().message());
      // Logged once, not every second.
      if (problem != problem_) LogError("arrays", absl::StrCat(problem, "; the arrays stay as they were"));
      problem_ = problem;
      return absl::Status(members.status().code(), problem);
    }
    problem_.clear();
    text_ = text;
    members_ = *std::move(members);
    for (const ArrayMember& member : members_) {
      LogInfo("arrays", "in use",
              {{"name", member.entry.remote.name},
               {"address", absl::StrJoin(member.entry.remote.addresses, ", ")}});
      if (member.tls.ok()) continue;
      problem_ = absl::StrCat("arrays file ", path_, ": ", member.tls.message());
      LogError("arrays", absl::StrCat(problem_, "; that array is away until this is right"));
    }
    return absl::OkStatus();
  }

  const std::string path_;
  absl::Mutex reload_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);     // in force
  std::string problem_ ABSL_GUARDED_BY(mutex_);  // with what is in the file now; empty: none
  std::vector<ArrayMember> members_ ABSL_GUARDED_BY(mutex_);
  std::optional<Periodic> watch_;  // last: it uses the rest
};

}  // namespace

absl::StatusOr<std::vector<ArrayEntry>> ParseArrays(const std::string& text) {
  Position position;
  EntryReader reader(&position);
  json::sax_parse(CountingIterator(text.data(), &position),
                  CountingIterator(text.data() + text.size(), &position), &reader);
  return reader.TakeResult();
}

absl::StatusOr<std::unique_ptr<ArraysFile>> OpenArraysFile(const std::string& path) {
  auto file = std::make_unique<ArraysFileImpl>(path);
  RETURN_IF_ERROR(file->Reload());
  file->StartWatching();
  return file;
}

}  // namespace lunkeeper

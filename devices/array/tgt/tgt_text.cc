// tgtd answers in text that is indented for people, and has no other form. Examples, cut to what is read
// here:
//
//   Target 7: iqn.2026-11.io.lunkeeper:a1:a1-v0123456789abcdef:7
//       I_T nexus information:
//           I_T nexus: 12
//       ACL information:
//           iqn.2026-11.io.lunkeeper:node:worker-1.0123456789abcdef
//
//   Session: 12
//       Connection: 0
//           Initiator: iqn.2026-11.io.lunkeeper:node:worker-1.0123456789abcdef
//           IP Address: 10.0.0.7
//
// Names of targets and initiators are ours and hold no blanks or line breaks, but an initiator chooses the
// name it logs in with. So keys are matched at the start of a line only, and a wrong guess may cost a line
// and never more: which connections a target has is asked of that target alone.
#include "devices/array/tgt/tgt_text.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lunkeeper {
namespace {

// The value of a line `<key> <value>`.
bool Value(absl::string_view line, absl::string_view key, absl::string_view* value) {
  line = absl::StripAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, key)) return false;
  *value = absl::StripAsciiWhitespace(line);
  return true;
}

template <class Number>
bool NumberOf(absl::string_view line, absl::string_view key, Number* number) {
  absl::string_view value;
  return Value(line, key, &value) && absl::SimpleAtoi(value, number);
}

}  // namespace

std::vector<TgtConnection> ParseTgtConnections(absl::string_view text) {
  std::vector<TgtConnection> connections;
  TgtConnection current;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::string_view words;
    if (NumberOf(line, "Session:", &current.session)) continue;
    if (NumberOf(line, "Connection:", &current.connection)) {
      connections.push_back(current);
    } else if (Value(line, "Initiator:", &words) && !connections.empty()) {
      connections.back().initiator = std::string(words);
    } else if (Value(line, "IP Address:", &words) && !connections.empty()) {
      connections.back().address = std::string(words);
    }
  }
  return connections;
}

std::vector<TgtStatistics> ParseTgtStatistics(absl::string_view text) {
  // tgt lun sid rd_subm(bytes,cmds) rd_done(bytes,cmds) wr_subm(bytes,cmds) wr_done(bytes,cmds) errs
  constexpr size_t kColumns = 12;
  constexpr uint64_t kLargestTarget = std::numeric_limits<int32_t>::max();
  std::vector<TgtStatistics> statistics;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::vector<uint64_t> numbers;
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipWhitespace())) {
      uint64_t number = 0;
      if (numbers.size() == kColumns || !absl::SimpleAtoi(word, &number)) break;
      numbers.push_back(number);
    }
    if (numbers.size() != kColumns || numbers[1] != 1 || numbers[0] > kLargestTarget) continue;
    statistics.push_back({.target = static_cast<int32_t>(numbers[0]),
                          .session = numbers[2],
                          .reads = numbers[6],
                          .writes = numbers[10],
                          .read_bytes = numbers[5],
                          .written_bytes = numbers[9]});
  }
  return statistics;
}

std::vector<std::string> ParseTgtPortals(absl::string_view text) {
  std::vector<std::string> portals;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::string_view portal;
    if (!Value(line, "Portal:", &portal)) continue;
    portals.emplace_back(portal.substr(0, portal.find(',')));
  }
  return portals;
}

std::vector<std::string> ParseTgtAccounts(absl::string_view text) {
  std::vector<std::string> users;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    // The heading is not indented.
    if (!absl::StartsWith(line, " ")) continue;
    const absl::string_view user = absl::StripAsciiWhitespace(line);
    if (!user.empty()) users.emplace_back(user);
  }
  return users;
}

std::vector<TgtTarget> ParseTgtTargets(absl::string_view text) {
  std::vector<TgtTarget> targets;
  bool in_access_list = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "Target ")) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(rest, absl::MaxSplits(": ", 1));
      TgtTarget target{.name = std::string(parts.second)};
      if (absl::SimpleAtoi(parts.first, &target.number)) targets.push_back(std::move(target));
      in_access_list = false;
    } else if (absl::string_view lun; !targets.empty() && Value(line, "LUN:", &lun)) {
      ++targets.back().luns;
    } else if (absl::StrContains(line, "ACL information:")) {
      in_access_list = true;
    } else if (in_access_list && !targets.empty() && !absl::StripAsciiWhitespace(line).empty()) {
      targets.back().open = true;
    }
  }
  return targets;
}

}  // namespace lunkeeper

#include "fencing/kube/object_event.h"

namespace lunkeeper::kube {
namespace {

constexpr size_t kMostNote = 1024;  // the API server rejects longer notes
// Where events about objects without a namespace belong: the API server accepts no other namespace for them.
constexpr char kOfClusters[] = "default";

// Shortens a note without cutting a UTF-8 character in two; bytes 10xxxxxx continue one.
std::string TrimNote(std::string text) {
  if (text.size() <= kMostNote) return text;
  size_t end = kMostNote;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

absl::Status RecordEvent(KubeClient& client, const ObjectEvent& event, absl::Time now, const Limits& limits) {
  // generateName: events need unique names, and most are not looked up by it.
  const std::string space = event.space.empty() ? kOfClusters : event.space;
  Json regarding = {{"apiVersion", event.api_version}, {"kind", event.kind}, {"name", event.name}};
  if (!event.space.empty()) regarding["namespace"] = event.space;
  if (!event.uid.empty()) regarding["uid"] = event.uid;
  Json metadata = {{"namespace", space}};
  if (event.own_name.empty())
    metadata["generateName"] = "lunkeeper-";
  else
    metadata["name"] = event.own_name;
  const Json object = {{"apiVersion", "events.k8s.io/v1"},
                       {"kind", "Event"},
                       {"metadata", std::move(metadata)},
                       {"eventTime", FormatMicroTime(now)},
                       {"type", event.event_kind == EventKind::kWarning ? "Warning" : "Normal"},
                       {"reason", event.reason},
                       {"action", event.action},
                       {"note", TrimNote(event.note)},
                       {"regarding", std::move(regarding)},
                       {"reportingController", "lunkeeper.io/controller"},
                       {"reportingInstance", event.reporter_instance}};
  return client.Create({{"events.k8s.io", "v1", "events"}, space, ""}, object, limits).status();
}

}  // namespace lunkeeper::kube

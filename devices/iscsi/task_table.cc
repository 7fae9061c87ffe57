#include "devices/iscsi/task_table.h"

namespace lunkeeper::iscsi {

TaskTable::TaskTable(uint32_t depth) : tasks_(depth) { free_.reserve(depth); }

void TaskTable::ForgetAll() {
  free_.clear();
  for (uint32_t slot = 0; slot < tasks_.size(); ++slot) {
    tasks_[slot] = Task();
    free_.push_back(slot);
  }
}

void TaskTable::TakeTask(Task* task) {
  const uint32_t slot = free_.back();
  free_.pop_back();
  task->transferred = 0;
  task->response = task->status = task->sense_key = task->asc = task->ascq = 0;
  task->deferred = false;
  task->internal = {};
  task->internal.tag = (++uses_ << 16) | slot;  // never kNoTag: there are fewer slots than that
  task->internal.active = true;
}

Task* TaskTable::FindTask(uint32_t tag) {
  const uint32_t slot = tag & 0xffff;
  if (slot >= tasks_.size()) return nullptr;
  Task& task = tasks_[slot];
  return task.internal.active && task.internal.tag == tag ? &task : nullptr;
}

void TaskTable::FreeTask(Task* task) { free_.push_back(static_cast<uint32_t>(task - tasks_.data())); }

}  // namespace lunkeeper::iscsi

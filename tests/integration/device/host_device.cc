// A device that is made up: its memory is the host's, its streams end at once, and its kernels are the CPU's, on which
// Paddle falls back. It serves the tests of what is not CUDA, through the header of Paddle's wheel, which is the
// contract for the makers of cards.
//
//   HOST_DEVICE_COUNT     devices that there are, 1 unless said
//   HOST_DEVICE_MEMORY    bytes that a process may have on one, 4 GiB unless said
//   HOST_DEVICE_COPIES    so many copies to the device succeed, and from then on all fail: it is gone
//   HOST_DEVICE_WAITS     so many waits for a stream succeed, and then one reports that a kernel has failed
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "paddle/phi/backends/device_ext.h"

namespace {

size_t setting(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Devices ------------------------------------------------------------------------------------------------------------

thread_local int current = 0;

C_Status nothing() { return C_SUCCESS; }
C_Status on_device(const C_Device) { return C_SUCCESS; }
C_Status set_device(const C_Device device) {
  current = device->id;
  return C_SUCCESS;
}
C_Status get_device(const C_Device device) {
  device->id = current;
  return C_SUCCESS;
}
C_Status count_devices(size_t* count) {
  *count = setting("HOST_DEVICE_COUNT", 1);
  return C_SUCCESS;
}
C_Status list_devices(size_t* devices) {
  for (size_t i = 0; i < setting("HOST_DEVICE_COUNT", 1); ++i) devices[i] = i;
  return C_SUCCESS;
}
C_Status version(const C_Device, size_t* number) {
  *number = 1;
  return C_SUCCESS;
}
C_Status has_half(const C_Device, bool* supported) {
  *supported = false;
  return C_SUCCESS;
}

// Streams and events: whatever is queued is done before the call returns ---------------------------------------------

C_Status create_stream(const C_Device, C_Stream* stream) {
  *stream = reinterpret_cast<C_Stream>(std::malloc(1));
  return C_SUCCESS;
}
C_Status destroy_stream(const C_Device, C_Stream stream) {
  std::free(stream);
  return C_SUCCESS;
}
C_Status on_stream(const C_Device, C_Stream) { return C_SUCCESS; }
C_Status wait_for(const C_Device, C_Stream) {
  static size_t waits = 0;
  return ++waits > setting("HOST_DEVICE_WAITS", ~size_t{0}) ? C_INTERNAL_ERROR : C_SUCCESS;
}
C_Status call_back(const C_Device device, C_Stream stream, C_Callback callback, void* data) {
  C_Status status = C_SUCCESS;
  callback(device, stream, data, &status);
  return status;
}
C_Status create_event(const C_Device, C_Event* event) {
  *event = reinterpret_cast<C_Event>(std::malloc(1));
  return C_SUCCESS;
}
C_Status destroy_event(const C_Device, C_Event event) {
  std::free(event);
  return C_SUCCESS;
}
C_Status on_event(const C_Device, C_Event) { return C_SUCCESS; }
C_Status on_stream_and_event(const C_Device, C_Stream, C_Event) { return C_SUCCESS; }

// Memory -------------------------------------------------------------------------------------------------------------

std::mutex lock;
size_t in_use = 0;
size_t copies = 0;

C_Status allocate(const C_Device, void** pointer, size_t size) {
  std::lock_guard<std::mutex> guard(lock);
  if (in_use + size > setting("HOST_DEVICE_MEMORY", size_t{4} << 30)) return C_FAILED;
  if (posix_memalign(pointer, 64, size) != 0) return C_FAILED;
  in_use += size;
  return C_SUCCESS;
}
C_Status release(const C_Device, void* pointer, size_t size) {
  std::lock_guard<std::mutex> guard(lock);
  in_use -= size;
  std::free(pointer);
  return C_SUCCESS;
}
C_Status allocate_on_host(const C_Device, void** pointer, size_t size) {
  return posix_memalign(pointer, 64, size) == 0 ? C_SUCCESS : C_FAILED;
}
C_Status release_on_host(const C_Device, void* pointer, size_t) {
  std::free(pointer);
  return C_SUCCESS;
}
C_Status fill(const C_Device, void* pointer, unsigned char value, size_t size) {
  std::memset(pointer, value, size);
  return C_SUCCESS;
}
C_Status copy(const C_Device, void* to, const void* from, size_t size) {
  std::memmove(to, from, size);
  return C_SUCCESS;
}
C_Status copy_to_device(const C_Device device, void* to, const void* from, size_t size) {
  if (++copies > setting("HOST_DEVICE_COPIES", ~size_t{0})) return C_INTERNAL_ERROR;
  return copy(device, to, from, size);
}
C_Status copy_later(const C_Device device, C_Stream, void* to, const void* from, size_t size) {
  return copy(device, to, from, size);
}
C_Status copy_to_device_later(const C_Device device, C_Stream, void* to, const void* from, size_t size) {
  return copy_to_device(device, to, from, size);
}
C_Status copy_between(const C_Device, const C_Device device, void* to, const void* from, size_t size) {
  return copy(device, to, from, size);
}
C_Status copy_between_later(const C_Device, const C_Device device, C_Stream, void* to, const void* from, size_t size) {
  return copy(device, to, from, size);
}
C_Status memory_stats(const C_Device, size_t* total, size_t* available) {
  *total = setting("HOST_DEVICE_MEMORY", size_t{4} << 30);
  *available = *total - in_use;
  return C_SUCCESS;
}
C_Status chunk(const C_Device, size_t* size) {
  *size = 64;
  return C_SUCCESS;
}

// Collectives: a piece of memory that the processes share, with a slot for each of them ---------------------------------

constexpr size_t kSlot = size_t{1} << 20;
constexpr size_t kRanks = 8;
constexpr size_t kName = 64;

struct Shared {
  std::atomic<size_t> arrived, round;
  char slots[kRanks][kSlot];
};

struct Group {
  Shared* shared;
  size_t ranks, rank;

  void meet() {
    const size_t now = shared->round;
    if (++shared->arrived == ranks) {
      shared->arrived = 0;
      ++shared->round;
    }
    while (shared->round == now) sched_yield();
  }
};

size_t bytes_of(C_DataType type) {
  switch (type) {
    case BOOL: case UINT8: case INT8: return 1;
    case INT32: case FLOAT32: return 4;
    case INT64: return 8;
    default: return 0;  // such as float64: not every card's collectives have it
  }
}

C_Status size_of_id(size_t* size) {
  *size = kName;
  return C_SUCCESS;
}
C_Status make_id(C_CCLRootId* id) {
  static int number = 0;
  std::snprintf(static_cast<char*>(id->data), kName, "/host_device_%d_%d", getpid(), number++);
  const int file = shm_open(static_cast<char*>(id->data), O_CREAT | O_RDWR | O_EXCL, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return C_FAILED;
  close(file);
  return C_SUCCESS;
}
C_Status join(size_t ranks, C_CCLRootId* id, size_t rank, C_CCLComm* comm) {
  const char* name = static_cast<char*>(id->data);
  const int file = shm_open(name, O_RDWR, 0600);
  if (file < 0 || ranks > kRanks) return C_FAILED;
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return C_FAILED;
  Group* group = new Group{static_cast<Shared*>(memory), ranks, rank};
  group->meet();
  if (rank == 0) shm_unlink(name);
  *comm = reinterpret_cast<C_CCLComm>(group);
  return C_SUCCESS;
}
C_Status leave(C_CCLComm comm) {
  Group* group = reinterpret_cast<Group*>(comm);
  munmap(group->shared, sizeof(Shared));
  delete group;
  return C_SUCCESS;
}

// Each rank writes a piece into its slot, and `read` makes what it wants of all slots.
template <typename Read>
C_Status exchange(const void* from, size_t count, C_DataType type, C_CCLComm comm, Read read) {
  Group* group = reinterpret_cast<Group*>(comm);
  const size_t width = bytes_of(type);
  if (width == 0) return C_ERROR;
  for (size_t start = 0; start < count * width; start += kSlot) {
    const size_t size = std::min(kSlot, count * width - start);
    std::memcpy(group->shared->slots[group->rank], static_cast<const char*>(from) + start, size);
    group->meet();
    read(*group, start, size);
    group->meet();
  }
  return C_SUCCESS;
}

template <typename Number>
void add(const Group& group, char* to, size_t size, C_CCLReduceOp op) {
  Number* totals = reinterpret_cast<Number*>(to);
  for (size_t i = 0; i < size / sizeof(Number); ++i) {
    Number total = reinterpret_cast<const Number*>(group.shared->slots[0])[i];
    for (size_t rank = 1; rank < group.ranks; ++rank) {
      const Number next = reinterpret_cast<const Number*>(group.shared->slots[rank])[i];
      total = op == MAX ? std::max(total, next) : op == MIN ? std::min(total, next) : total + next;
    }
    totals[i] = op == AVG ? total / static_cast<Number>(group.ranks) : total;
  }
}

C_Status all_reduce(void* from, void* to, size_t count, C_DataType type, C_CCLReduceOp op, C_CCLComm comm, C_Stream) {
  if (op == PRODUCT || (type != FLOAT32 && type != INT64 && type != INT32)) return C_ERROR;
  return exchange(from, count, type, comm, [=](const Group& group, size_t start, size_t size) {
    char* piece = static_cast<char*>(to) + start;
    if (type == FLOAT32) add<float>(group, piece, size, op);
    if (type == INT64) add<int64_t>(group, piece, size, op);
    if (type == INT32) add<int32_t>(group, piece, size, op);
  });
}
C_Status broadcast(void* buffer, size_t count, C_DataType type, size_t root, C_CCLComm comm, C_Stream) {
  return exchange(buffer, count, type, comm, [=](const Group& group, size_t start, size_t size) {
    std::memcpy(static_cast<char*>(buffer) + start, group.shared->slots[root], size);
  });
}
C_Status all_gather(void* from, void* to, size_t count, C_DataType type, C_CCLComm comm, C_Stream) {
  return exchange(from, count, type, comm, [=](const Group& group, size_t start, size_t size) {
    for (size_t rank = 0; rank < group.ranks; ++rank)
      std::memcpy(static_cast<char*>(to) + rank * count * bytes_of(type) + start, group.shared->slots[rank], size);
  });
}

}  // namespace

extern "C" void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  params->device_type = const_cast<char*>("host_device");
  params->sub_device_type = const_cast<char*>("v1");
  C_DeviceInterface* i = params->interface;
  std::memset(i, 0, sizeof(C_DeviceInterface));
  i->size = sizeof(C_DeviceInterface);

  i->initialize = nothing;
  i->finalize = nothing;
  i->init_device = i->deinit_device = i->synchronize_device = on_device;
  i->set_device = set_device;
  i->get_device = get_device;
  i->get_device_count = count_devices;
  i->get_device_list = list_devices;
  i->get_compute_capability = i->get_runtime_version = i->get_driver_version = version;
  i->is_float16_supported = i->is_bfloat16_supported = has_half;

  i->create_stream = create_stream;
  i->destroy_stream = destroy_stream;
  i->query_stream = on_stream;
  i->synchronize_stream = wait_for;
  i->stream_add_callback = call_back;
  i->create_event = create_event;
  i->destroy_event = destroy_event;
  i->query_event = i->synchronize_event = on_event;
  i->record_event = i->stream_wait_event = on_stream_and_event;

  i->device_memory_allocate = allocate;
  i->device_memory_deallocate = release;
  i->host_memory_allocate = i->unified_memory_allocate = allocate_on_host;
  i->host_memory_deallocate = i->unified_memory_deallocate = release_on_host;
  i->device_memory_set = fill;
  i->memory_copy_h2d = copy_to_device;
  i->memory_copy_d2h = i->memory_copy_d2d = copy;
  i->async_memory_copy_h2d = copy_to_device_later;
  i->async_memory_copy_d2h = i->async_memory_copy_d2d = copy_later;
  i->memory_copy_p2p = copy_between;
  i->async_memory_copy_p2p = copy_between_later;
  i->device_memory_stats = memory_stats;
  i->device_min_chunk_size = chunk;

  i->xccl_get_unique_id_size = size_of_id;
  i->xccl_get_unique_id = make_id;
  i->xccl_comm_init_rank = join;
  i->xccl_destroy_comm = leave;
  i->xccl_group_start = i->xccl_group_end = nothing;
  i->xccl_all_reduce = all_reduce;
  i->xccl_broadcast = broadcast;
  i->xccl_all_gather = all_gather;
}

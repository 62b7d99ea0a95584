#include "loci/model/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "loci/model/gguf_reader.h"

namespace loci {
namespace {

// A whole file, mapped for reading. Move-only.
class FileMap {
 public:
  FileMap() = default;
  FileMap(void* data, std::size_t size) : data_(data), size_(size) {}
  FileMap(FileMap&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FileMap& operator=(FileMap&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~FileMap() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

Status file_error(int error, std::string_view what) {
  std::string message = fmt::format("cannot {}: {}", what, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return not_found(std::move(message));
  return invalid_argument(std::move(message));
}

Result<FileMap> map_descriptor(int descriptor) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return file_error(errno, "read its size");
  if (!S_ISREG(status.st_mode))
    return invalid_argument("expected a regular file, found a directory or device");
  if (status.st_size == 0) return invalid_argument("expected a GGUF file, found an empty one", "magic");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) return file_error(errno, "map it");
  return FileMap(data, size);
}

Result<FileMap> map_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return file_error(errno, "open it");
  Result<FileMap> map = map_descriptor(descriptor);
  ::close(descriptor);
  return map;
}

}  // namespace

struct GgufFile::State {
  FileMap map;  // empty when the caller keeps the bytes
  std::uint64_t file_bytes = 0;
  GgufContents contents;
  // By views of the tensors' own names.
  std::map<std::string_view, std::size_t> tensor_index;
  std::map<std::string_view, std::size_t> opaque_index;
};

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {
  const auto& tensors = state_->contents.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) state_->tensor_index.emplace(tensors[i].name, i);
  const auto& opaque = state_->contents.opaque_tensors;
  for (std::size_t i = 0; i < opaque.size(); ++i) state_->opaque_index.emplace(opaque[i].name, i);
}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::open(const std::string& path) {
  Result<FileMap> map = map_file(path);
  if (!map.ok()) return map.status().with_context(path);
  Result<GgufContents> contents = read_gguf(map->bytes());
  if (!contents.ok()) return contents.status().with_context(path);
  auto state = std::make_unique<State>();
  state->map = std::move(*map);
  state->file_bytes = state->map.bytes().size();
  state->contents = std::move(*contents);
  return GgufFile(std::move(state));
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  LOCI_ASSIGN_OR_RETURN(GgufContents contents, read_gguf(bytes));
  auto state = std::make_unique<State>();
  state->file_bytes = bytes.size();
  state->contents = std::move(contents);
  return GgufFile(std::move(state));
}

std::uint32_t GgufFile::version() const { return state_->contents.version; }
std::uint64_t GgufFile::file_bytes() const { return state_->file_bytes; }
const std::map<std::string, GgufValue, std::less<>>& GgufFile::metadata() const {
  return state_->contents.metadata;
}
const std::vector<TensorView>& GgufFile::tensors() const { return state_->contents.tensors; }
const std::vector<OpaqueTensor>& GgufFile::opaque_tensors() const { return state_->contents.opaque_tensors; }

const TensorView* GgufFile::find_tensor(std::string_view name) const {
  const auto found = state_->tensor_index.find(name);
  return found == state_->tensor_index.end() ? nullptr : &tensors()[found->second];
}

const OpaqueTensor* GgufFile::find_opaque_tensor(std::string_view name) const {
  const auto found = state_->opaque_index.find(name);
  return found == state_->opaque_index.end() ? nullptr : &opaque_tensors()[found->second];
}

}  // namespace loci

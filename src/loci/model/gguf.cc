#include "loci/model/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
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

constexpr std::string_view kTypeNames[] = {"an unsigned 8-bit integer",
                                           "a signed 8-bit integer",
                                           "an unsigned 16-bit integer",
                                           "a signed 16-bit integer",
                                           "an unsigned 32-bit integer",
                                           "a signed 32-bit integer",
                                           "a 32-bit float",
                                           "a bool",
                                           "a string",
                                           "an array",
                                           "an unsigned 64-bit integer",
                                           "a signed 64-bit integer",
                                           "a 64-bit float"};
constexpr std::string_view kElementNames[] = {"unsigned 8-bit integers",
                                              "signed 8-bit integers",
                                              "unsigned 16-bit integers",
                                              "signed 16-bit integers",
                                              "unsigned 32-bit integers",
                                              "signed 32-bit integers",
                                              "32-bit floats",
                                              "bools",
                                              "strings",
                                              "arrays",
                                              "unsigned 64-bit integers",
                                              "signed 64-bit integers",
                                              "64-bit floats"};

Status wrong_type(std::string_view key, std::string_view expected, const GgufValue* found) {
  return invalid_argument(fmt::format("expected {}, found {}", expected,
                                      found == nullptr ? "no such key" : describe_type(*found)),
                          std::string(key));
}

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// What the elements of an array convert to, or the error of the first that does not.
template <class To, class Convert>
Result<std::vector<To>> convert_array(std::string_view key, std::string_view expected, const GgufValue* value,
                                      Convert convert) {
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  if (array == nullptr) return wrong_type(key, expected, value);
  return std::visit([&](const auto& elements) { return convert(elements); }, array->elements);
}

}  // namespace

std::size_t GgufArray::size() const {
  return std::visit([](const auto& vector) { return vector.size(); }, elements);
}

std::string describe_type(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    return fmt::format("an array of {}", kElementNames[array->elements.index()]);
  }
  return std::string(kTypeNames[value.index()]);
}

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
const std::vector<GgufOpaqueTensor>& GgufFile::opaque_tensors() const {
  return state_->contents.opaque_tensors;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata().find(key);
  return found == metadata().end() ? nullptr : &found->second;
}

const TensorView* GgufFile::find_tensor(std::string_view name) const {
  const auto found = state_->tensor_index.find(name);
  return found == state_->tensor_index.end() ? nullptr : &tensors()[found->second];
}

const GgufOpaqueTensor* GgufFile::find_opaque_tensor(std::string_view name) const {
  const auto found = state_->opaque_index.find(name);
  return found == state_->opaque_index.end() ? nullptr : &opaque_tensors()[found->second];
}

Result<TensorView> GgufFile::get_tensor(std::string_view name) const {
  if (const TensorView* tensor = find_tensor(name)) return *tensor;
  if (const GgufOpaqueTensor* opaque = find_opaque_tensor(name)) {
    std::string supported;
    for (const TensorTypeInfo& info : supported_tensor_types()) {
      supported += fmt::format("{}{}", supported.empty() ? "" : ", ", info.name);
    }
    return invalid_argument(fmt::format("expected a tensor of type {}, found {} (type number {})", supported,
                                        opaque->type_name, opaque->type_number),
                            std::string(name));
  }
  return invalid_argument("expected this tensor, found that the file has none of this name",
                          std::string(name));
}

Result<std::uint64_t> GgufFile::get_uint(std::string_view key) const {
  constexpr std::string_view kExpected = "an unsigned integer";
  const GgufValue* value = find(key);
  if (value == nullptr) return wrong_type(key, kExpected, nullptr);
  return std::visit(
      [&]<class T>(const T& number) -> Result<std::uint64_t> {
        if constexpr (kIsInteger<T>) {
          if (std::cmp_less(number, 0)) {
            return invalid_argument(fmt::format("expected {}, found {}", kExpected, number),
                                    std::string(key));
          }
          return static_cast<std::uint64_t>(number);
        } else {
          return wrong_type(key, kExpected, value);
        }
      },
      *value);
}

Result<double> GgufFile::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* single = std::get_if<float>(value)) return static_cast<double>(*single);
    if (const auto* number = std::get_if<double>(value)) return *number;
  }
  return wrong_type(key, "a float", value);
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* boolean = std::get_if<bool>(value)) return *boolean;
  }
  return wrong_type(key, "a bool", value);
}

Result<std::string> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* text = std::get_if<std::string>(value)) return *text;
  }
  return wrong_type(key, "a string", value);
}

Result<std::vector<std::string>> GgufFile::get_strings(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of strings";
  const GgufValue* value = find(key);
  return convert_array<std::string>(
      key, kExpected, value,
      [&]<class T>(const std::vector<T>& elements) -> Result<std::vector<std::string>> {
        if constexpr (std::is_same_v<T, std::string>) {
          return elements;
        } else {
          return wrong_type(key, kExpected, value);
        }
      });
}

Result<std::vector<std::int32_t>> GgufFile::get_ints(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of integers";
  const GgufValue* value = find(key);
  return convert_array<std::int32_t>(
      key, kExpected, value,
      [&]<class T>(const std::vector<T>& elements) -> Result<std::vector<std::int32_t>> {
        if constexpr (kIsInteger<T>) {
          std::vector<std::int32_t> out;
          out.reserve(elements.size());
          for (const T element : elements) {
            if (!std::in_range<std::int32_t>(element)) {
              return invalid_argument(
                  fmt::format("expected integers of 32 bits, found {} at index {}", element, out.size()),
                  std::string(key));
            }
            out.push_back(static_cast<std::int32_t>(element));
          }
          return out;
        } else {
          return wrong_type(key, kExpected, value);
        }
      });
}

Result<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of floats";
  const GgufValue* value = find(key);
  return convert_array<float>(key, kExpected, value,
                              [&]<class T>(const std::vector<T>& elements) -> Result<std::vector<float>> {
                                if constexpr (std::is_floating_point_v<T>) {
                                  return std::vector<float>(elements.begin(), elements.end());
                                } else {
                                  return wrong_type(key, kExpected, value);
                                }
                              });
}

}  // namespace loci

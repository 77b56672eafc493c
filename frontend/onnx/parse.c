/* Parses the protobuf of an ONNX file. */
#include "model.h"
#include <string.h>

/* Messages inside messages. Graphs are nested by attributes of nodes: four messages for each level. */
enum { MOST_NESTED = 100 };

struct wire {
  const uint8_t *at, *end;
};
static bool take_varint(struct wire *w, uint64_t *out) {
  *out = 0;
  for (unsigned shift = 0; shift < 70 && w->at < w->end; shift += 7) {
    uint8_t byte = *w->at++;
    if (shift < 64) *out |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

/* Whether messages are nested at most `left` levels. protobuf-c parses nested messages recursively and has no limit, so
 * this check protects the stack. Bytes that it cannot read are left to protobuf-c. */
static bool nested_within(const ProtobufCMessageDescriptor *d, struct wire w, unsigned left) {
  enum { VARINT, FIXED64, LENGTH, FIXED32 = 5 };
  uint64_t key, length;
  while (take_varint(&w, &key)) {
    switch (key & 7) {
    case VARINT: length = 0; break;
    case FIXED64: length = 8; break;
    case FIXED32: length = 4; break;
    default: length = 0;
    }
    if ((key & 7) == VARINT || (key & 7) == LENGTH) {
      uint64_t number;
      if (!take_varint(&w, &number)) return true;
      if ((key & 7) == LENGTH) length = number;
    }
    if (length > (size_t)(w.end - w.at)) return true;
    const ProtobufCFieldDescriptor *f =
        key >> 3 <= UINT32_MAX ? protobuf_c_message_descriptor_get_field(d, (unsigned)(key >> 3)) : NULL;
    if (f && f->type == PROTOBUF_C_TYPE_MESSAGE && (key & 7) == LENGTH &&
        (!left || !nested_within(f->descriptor, (struct wire){w.at, w.at + length}, left - 1)))
      return false;
    w.at += length;
  }
  return true;
}

bool onnx_is_standard(const char *domain) { return !domain || !*domain || !strcmp(domain, "ai.onnx"); }

int64_t onnx_opset(Onnx__OperatorSet *const *sets, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (onnx_is_standard(sets[i]->domain)) return sets[i]->version;
  return 0;
}

static int check(const Onnx__Model *m, char *err, size_t cap) {
  int64_t opset = onnx_opset(m->opset_import, m->n_opset_import);
  if (!m->graph || !m->n_opset_import) return refuse_input(err, cap, "not an ONNX model");
  if (!opset) return refuse_input(err, cap, "the model imports no opset of the standard domain");
  if (opset < ONNX_LEAST_OPSET || opset > ONNX_LAST_OPSET)
    return refuse_input(err, cap, "not supported: opset %lld; opsets %d to %d are", (long long)opset, ONNX_LEAST_OPSET,
                        ONNX_LAST_OPSET);
  if (m->graph->n_sparse_initializer) return refuse_input(err, cap, "not supported: sparse initializers");
  return 0;
}

Onnx__Model *onnx_parse(const void *bytes, size_t size, char *err, size_t cap) {
  if (!nested_within(&onnx__model__descriptor, (struct wire){bytes, (const uint8_t *)bytes + size}, MOST_NESTED)) {
    refuse_input(err, cap, "not supported: more than %d nested messages", MOST_NESTED);
    return NULL;
  }
  Onnx__Model *m = onnx__model__unpack(NULL, size, bytes);
  if (!m) {
    refuse_input(err, cap, "not an ONNX model: the protobuf cannot be parsed");
    return NULL;
  }
  if (!check(m, err, cap)) return m;
  onnx__model__free_unpacked(m, NULL);
  return NULL;
}

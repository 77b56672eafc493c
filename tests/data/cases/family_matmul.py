"""Products of vectors and matrices."""
import numpy as np
import torch

from core import FLOATS, INF, NAN, In, TOL, TYPES, case, is_float, promote

for sa, sb in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3, 4)), ((2, 1, 2, 3), (4, 3, 2)), ((2, 3), (4, 3, 2)), ((5, 2, 3), (3,)),
               ((3,), (2, 3, 2)), ((1, 1), (1, 1)), ((17, 33), (33, 9)), ((8, 16), (16, 8)), ((1, 40), (40, 1)), ((13, 1), (1, 11)), ((0, 3), (3, 4)), ((2, 0), (0, 3)), ((0,), (0,)), ((3, 2, 0), (0, 2))):
    case("matmul", [In("f32", sa), In("f32", sb)], torch.matmul, tol=1e-5, gtol=1e-5)
for t in TYPES:
    if t in FLOATS:
        case("matmul", [In(t, (3, 5)), In(t, (5, 2))], torch.matmul, tol=2 * TOL[t])
    elif t == "bool":
        case("matmul", [In(t, (3, 5)), In(t, (5, 2))], lambda a, b: a.long() @ b.long())
    else:
        case("matmul", [In(t, (3, 5)), In(t, (5, 2))], torch.matmul)
for a, b in (("i32", "f16"), ("f16", "bf16"), ("bf16", "f32"), ("i8", "u8"), ("u8", "f32"), ("f32", "f64"), ("bool", "f32"), ("i16", "i32")):
    t = promote(a, b)
    case("matmul", [In(a, (2, 3)), In(b, (3, 2))], lambda x, y: x.to(torch.float64) @ y.to(torch.float64) if is_float(t) else x.long() @ y.long(), tol=2 * TOL.get(t, 0))
for t, tol in (("f16", 2e-3), ("bf16", 1.6e-2), ("f32", 1e-5)):
    case("matmul", [In(t, (16, 32), span=(-1, 1)), In(t, (32, 16), span=(-1, 1))], torch.matmul, tol=tol, floor=4, gfloor=4)
for va, vb in (([("permute", 1, 0)], ()), ((), [("permute", 1, 0)]), ([("permute", 1, 0)], [("permute", 1, 0)]), ([("flip", 0, 1)], [("flip", 1)])):
    case("matmul", [In("f32", (4, 4), view=va), In("f32", (4, 4), view=vb)], torch.matmul, tol=1e-5, gtol=1e-5)
case("matmul", [In("f32", (6, 8), view=[("shrink", 1, 5, 2, 7), ("flip", 0)]), In("f32", (1, 3), view=[("expand", 5, 3)])], torch.matmul, tol=1e-5, gtol=1e-5)
case("matmul", [In("f32", data=[[1, NAN], [INF, 0], [0, 0]]), In("f32", data=[[1, 2], [0, -1]])], torch.matmul, grad=False)
case("matmul", [In("i64", data=np.array([[2**62, 3], [-2**63, 1]], object)), In("i64", data=np.array([[4, 1], [5, -1]], object))], np.matmul, arrays=True)
case("matmul", [In("i8", data=[[127, 127], [-128, 5]]), In("i8", data=[[127, 2], [127, 3]])], np.matmul, arrays=True)

# ---- sums of products by name, outer and inner products
EINSUM = (("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij->ji", (2, 3)), ("ij->i", (2, 3)), ("ij->", (2, 3)), ("i,i->", (4,), (4,)), ("i,j->ij", (2,), (3,)),
          ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)), ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij,ij->ij", (2, 3), (2, 3)), ("ij,kj->ki", (2, 3), (4, 3)),
          ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 2)), ("...i,i->...", (2, 3, 4), (4,)), ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)), ("a,b,c->cab", (2,), (3,), (2,)), ("ijk->kj", (2, 3, 4)),
          ("Ab,bA->A", (2, 3), (3, 2)), ("iij->ij", (2, 2, 3)), ("ba,ca", (2, 3), (4, 3)), ("...i->...", (2, 0)))
for spec, *shapes in EINSUM:
    case("einsum", [In("f32", s) for s in shapes], lambda *x: torch.einsum(spec, *x), tol=1e-5, gtol=1e-5, spec=spec)
for t in ("i32", "u8", "f16", "bf16", "f64", "i64"):
    case("einsum", [In(t, (2, 3)), In(t, (3, 4))], lambda *x: torch.einsum("ij,jk->ki", *x), tol=2 * TOL.get(t, 0), spec="ij,jk->ki")
    case("outer", [In(t, (3,)), In(t, (4,))], torch.outer, tol=TOL.get(t, 0))
    case("inner", [In(t, (2, 3)), In(t, (4, 3))], torch.inner, tol=2 * TOL.get(t, 0))
for a, b in (((3,), (3,)), ((2, 2, 3), (4, 3)), ((3,), (2, 3)), ((2, 0), (3, 0))):
    case("inner", [In("f32", a), In("f32", b)], torch.inner, tol=1e-5, gtol=1e-5)
case("outer", [In("f32", (3,)), In("f32", (0,))], torch.outer)

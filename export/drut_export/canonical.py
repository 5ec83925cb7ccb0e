"""The same graph, written the same way every time.

Tracing leaves stack traces with local paths in a graph, and the order of nodes and their numbers
depend on the hash seed of the process. Two exports of one checkpoint must be the same bytes.
"""

from collections.abc import Iterator

import onnx_ir as ir

PRODUCER = "drut_export"


def make_canonical(model: ir.Model) -> None:
    """Drop what tracing left behind; order and name nodes, values and constants by the graph alone.

    Weights named with a dot keep their names.
    """
    model.producer_name = PRODUCER
    model.producer_version = None
    model.doc_string = None
    for owner in (model, model.graph):
        owner.metadata_props.clear()
    nodes = list(_from_outputs(model.graph))
    _reorder(model.graph, nodes)
    for number, node in enumerate(nodes):
        node.metadata_props.clear()
        node.doc_string = None
        node.name = f"{node.op_type}_{number}"
    _name_values(model.graph, nodes)


def _from_outputs(graph: ir.Graph) -> Iterator[ir.Node]:
    """Every node that an output needs, after all nodes it needs itself, depth first."""
    done: set[ir.Node] = set()
    stack = [(value.producer(), False) for value in reversed(graph.outputs)]
    while stack:
        node, ready = stack.pop()
        if node is None or node in done:
            continue
        if ready:
            done.add(node)
            yield node
            continue
        stack.append((node, True))
        stack.extend((v.producer(), False) for v in reversed(node.inputs) if v is not None)


def _reorder(graph: ir.Graph, nodes: list[ir.Node]) -> None:
    wanted = set(nodes)
    for node in reversed([node for node in graph if node not in wanted]):
        graph.remove(node, safe=True)
    graph.remove(nodes)
    graph.extend(nodes)


def _name_values(graph: ir.Graph, nodes: list[ir.Node]) -> None:
    fixed = {id(value) for value in (*graph.inputs, *graph.outputs)}
    initializers = list(_constants_in_use(graph, nodes))
    graph.initializers.clear()  # first: a new name may be an old one of another constant
    for number, value in enumerate(value for value in initializers if not is_weight(value)):
        value.name = f"constant_{number}"
    for node in nodes:
        for number, value in enumerate(node.outputs):
            value.metadata_props.clear()
            if id(value) not in fixed:
                value.name = f"{node.name}_{number}"
                value.shape, value.type = None, None
    for value in initializers:
        value.metadata_props.clear()
        graph.register_initializer(value)
    for value in (*graph.inputs, *graph.outputs):
        value.metadata_props.clear()


def _constants_in_use(graph: ir.Graph, nodes: list[ir.Node]) -> Iterator[ir.Value]:
    seen: set[int] = set()
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.is_initializer() and id(value) not in seen:
                seen.add(id(value))
                yield value


def is_weight(value: ir.Value) -> bool:
    """Whether an initialiser is named after an entry of the state dict."""
    return "." in (value.name or "")

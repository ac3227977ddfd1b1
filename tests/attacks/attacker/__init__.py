"""An attacker's own tools: TLS, framed JSON, the frames of the mesh and of channels, and ACL messages.

They are written from the documentation alone and use nothing of Sealbus: no rule of the product holds on this side.
"""

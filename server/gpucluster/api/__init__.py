"""The service's face: schemas, the one table of submit options, HTTP and WebSocket handlers, authentication."""

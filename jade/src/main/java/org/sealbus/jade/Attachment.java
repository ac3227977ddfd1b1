package org.sealbus.jade;

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import javax.net.ssl.SSLSocket;

/** One connection to a node: requests and their answers, and the node's notices, as JSON in frames over TLS. */
final class Attachment implements AutoCloseable {
    private static final String PROTOCOL = "sealbus-attachment/1";
    /** The longest deny list fits. */
    private static final int MAX_FRAME = 24 * 1024 * 1024;
    /** How long the node may take to answer, in seconds; it may have to ask the Master. */
    private static final long PATIENCE = 30;

    private final SSLSocket socket;
    private final Consumer<Object> notices;
    /** Does work after all earlier notices were obeyed. */
    private final Consumer<Runnable> afterNotices;
    private final AtomicLong numbers = new AtomicLong();
    private final Map<Long, CompletableFuture<Object>> asked = new ConcurrentHashMap<>();
    private final CompletableFuture<String> closed = new CompletableFuture<>();

    /** The node refused a request. */
    static final class Refused extends IOException {
        private final String code;

        Refused(Object fault) {
            super(Json.text(fault, "message")
                    + (Json.member(fault, "advice") instanceof String advice ? " (" + advice + ")" : ""));
            code = Json.text(fault, "code");
        }

        /** Whether asking again may help. */
        boolean isPassing() {
            return code.equals("unavailable");
        }
    }

    /** Connects to the node that a ticket names. The node must show the platform's root. */
    Attachment(Ticket ticket, Consumer<Object> notices, Consumer<Runnable> afterNotices) throws IOException {
        this.notices = notices;
        this.afterNotices = afterNotices;
        IOException last = null;
        SSLSocket found = null;
        for (String address : ticket.addresses()) {
            try {
                found = connect(address, ticket);
                break;
            } catch (IOException failed) {
                last = new IOException("there is no connection to the node at " + address + ": " + failed.getMessage(), failed);
            }
        }
        if (found == null) {
            throw last;
        }
        socket = found;
        Door.start("sealbus-node", this::read);
    }

    private static SSLSocket connect(String address, Ticket ticket) throws IOException {
        Socket socket = new Socket();
        try {
            Tls.dial(socket, address);
            return Tls.connect(socket, null, chain -> checkNode(chain, ticket), PROTOCOL);
        } catch (IOException failed) {
            socket.close();
            throw failed;
        }
    }

    /** The other end is a node under the root that the ticket pins. */
    private static void checkNode(List<X509Certificate> chain, Ticket ticket) throws CertificateException {
        X509Certificate root = chain.get(chain.size() - 1);
        if (!Arrays.equals(DenyList.sha256().digest(root.getEncoded()), ticket.root())) {
            throw new CertificateException("it does not show the root certificate that the ticket names");
        }
        Trust trust = new Trust(ticket.platform(), List.of(root));
        Identity identity = trust.verify(chain.subList(0, chain.size() - 1)).identity();
        if (!identity.kind().equals("node")) {
            throw new CertificateException(identity + " is not a node");
        }
    }

    /** Asks the node, and waits for the answer. */
    Object ask(Map<String, Object> request) throws IOException {
        long id = numbers.incrementAndGet();
        CompletableFuture<Object> answer = new CompletableFuture<>();
        asked.put(id, answer);
        try {
            send("call", id, request);
            if (closed.isDone()) {
                throw new IOException(closed.join());
            }
            return answer.get(PATIENCE, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof IOException error) {
                throw error;
            }
            throw new IOException(failed.getCause());
        } catch (TimeoutException late) {
            throw new IOException("the node did not answer within " + PATIENCE + " s", late);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException(interrupted);
        } finally {
            asked.remove(id);
        }
    }

    private void read() {
        String why;
        try {
            while (true) {
                take(Json.read(new String(Frames.read(socket.getInputStream(), MAX_FRAME), StandardCharsets.UTF_8)));
            }
        } catch (IOException | RuntimeException ended) {
            why = "the connection to the node was lost: " + ended;
        }
        close();
        closed.complete(why);
        asked.values().forEach(answer -> answer.completeExceptionally(new IOException(closed.join())));
    }

    private void take(Object frame) {
        if (Json.member(frame, "answer") instanceof Map<?, ?> answer) {
            resolve(answer).complete(answer.get("body"));
        } else if (Json.member(frame, "fault") instanceof Map<?, ?> fault) {
            resolve(fault).completeExceptionally(new Refused(fault.get("body")));
        } else if (Json.member(frame, "notice") instanceof Map<?, ?> notice) {
            notices.accept(notice.get("body"));
        } else if (Json.member(frame, "call") instanceof Map<?, ?> call
                && Json.member(call.get("body"), "ask") instanceof String asked && asked.equals("heard")) {
            afterNotices.accept(() -> saysThatItHeard(call.get("id")));
        }
    }

    private void send(String kind, Object id, Map<String, Object> body) throws IOException {
        byte[] frame = Json.write(Map.of(kind, Map.of("id", id, "body", body))).getBytes(StandardCharsets.UTF_8);
        synchronized (socket) {
            Frames.write(socket.getOutputStream(), frame);
        }
    }

    private void saysThatItHeard(Object id) {
        try {
            send("answer", id, Map.of("answer", "done"));
        } catch (IOException lost) {
            // The container attaches again, and is then asked again.
            close();
        }
    }

    private CompletableFuture<Object> resolve(Map<?, ?> frame) {
        CompletableFuture<Object> answer = frame.get("id") instanceof Long id ? asked.get(id) : null;
        return answer == null ? new CompletableFuture<>() : answer;
    }

    /** Is completed with the reason when the connection ends. */
    CompletableFuture<String> closed() {
        return closed;
    }

    @Override
    public void close() {
        Door.shut(socket);
    }
}

package org.sealbus.jade;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** A real Sealbus platform and real JADE containers, each in processes of their own. Closing it ends them all. */
final class Platform implements AutoCloseable {
    /** Seconds that anything may take on a busy machine; nothing is expected to. */
    static final long LIMIT = 240;
    private static final Path SEALBUS = Path.of(System.getProperty("sealbus.bin"), "sealbus").toAbsolutePath().normalize();

    /** A Java of version 25 or later. */
    private static final String JAVA = System.getProperty("sealbus.java");

    private final Path folder;
    private final List<Program> programs = new ArrayList<>();

    /** A process with its output in a file. */
    record Program(Process process, Path log) {
        String output() {
            try {
                return Files.readString(log);
            } catch (IOException unreadable) {
                return unreadable.toString();
            }
        }

        /** Waits until the program has written this. */
        void says(String text) {
            await(() -> {
                boolean said = output().contains(text);
                if (!said && !process.isAlive() && !output().contains(text)) {
                    throw new AssertionError("it ended without " + text + ":\n" + output());
                }
                return said;
            }, text, this);
        }

        void ends() {
            await(() -> !process.isAlive(), "its end", this);
        }
    }

    /** Starts a platform from the members of its manifest's table {@code platform}. */
    Platform(Path folder, String settings) throws IOException {
        if (!Files.isExecutable(SEALBUS)) {
            throw new IllegalStateException(SEALBUS + " is missing: run `make binary`, or set -Dsealbus.bin");
        }
        this.folder = folder;
        Path manifest = folder.resolve("platform.toml");
        Files.writeString(manifest, "[platform]\nname = \"factory\"\n" + settings + "\n");
        Program up = program("up", Map.of(), SEALBUS.toString(), "up", manifest.toString(), "--state", state());
        await(() -> {
            if (!up.process().isAlive()) {
                throw new AssertionError("`sealbus up` ended by itself:\n" + up.output());
            }
            return run("nodes").contains("\"alive\"");
        }, "the platform", up);
    }

    static void await(BooleanSupplier condition, String what, Program shown) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("waited " + LIMIT + " s in vain for " + what + "\n" + shown.output());
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException interrupted) {
                throw new AssertionError(interrupted);
            }
        }
    }

    private String state() {
        return folder.resolve("state").toString();
    }

    private Program program(String name, Map<String, String> environment, String... command) throws IOException {
        Path log = folder.resolve(name + ".log");
        ProcessBuilder builder = new ProcessBuilder(command).directory(folder.toFile())
                .redirectErrorStream(true).redirectOutput(log.toFile());
        builder.environment().keySet().removeIf(variable -> variable.startsWith("SEALBUS_"));
        builder.environment().putAll(environment);
        Program program = new Program(builder.start(), log);
        programs.add(program);
        return program;
    }

    /** A command's output as JSON; its complaint, if it fails. */
    String run(String... arguments) {
        List<String> command = new ArrayList<>(List.of(SEALBUS.toString()));
        Collections.addAll(command, arguments);
        Collections.addAll(command, "--json", "--state", state());
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
            String printed = new String(process.getInputStream().readAllBytes());
            process.waitFor();
            return printed;
        } catch (IOException | InterruptedException failed) {
            throw new AssertionError(failed);
        }
    }

    /** A command that goes on, as a program of its own. */
    Program program(String name, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(SEALBUS.toString()));
        Collections.addAll(command, arguments);
        Collections.addAll(command, "--state", state());
        return program(name, Map.of(), command.toArray(String[]::new));
    }

    /** The program that runs the platform, with its Master. */
    Program up() {
        return programs.get(0);
    }

    /** The processes of the node. */
    List<ProcessHandle> node() {
        List<ProcessHandle> nodes = up().process().descendants()
                .filter(process -> process.info().commandLine().orElse("").contains(" node ")).toList();
        if (nodes.isEmpty()) {
            throw new AssertionError("no node among " + up().process().descendants().map(ProcessHandle::info).toList());
        }
        return nodes;
    }

    /** Kills the node. The program that runs the platform starts it again. */
    void killNode() {
        node().forEach(ProcessHandle::destroyForcibly);
    }

    /** Stops a process ({@code STOP}), or lets it go on ({@code CONT}). */
    static void signal(ProcessHandle process, String signal) throws IOException, InterruptedException {
        new ProcessBuilder("kill", "-" + signal, String.valueOf(process.pid())).inheritIO().start().waitFor();
    }

    /** A fresh ticket for an agent, and for further agents of the same process. */
    String ticket(String... agents) {
        List<String> arguments = new ArrayList<>(List.of("ticket"));
        Collections.addAll(arguments, agents);
        return Json.text(Json.read(run(arguments.toArray(String[]::new))), "ticket");
    }

    /** Whether the platform shows an agent in this state. */
    boolean shows(String agent, String state) {
        for (Object row : (List<?>) Json.read(run("ps"))) {
            if (Json.text(row, "name").equals(agent + "@factory")) {
                return state.equals(Json.member(row, "state"));
            }
        }
        return false;
    }

    /** A free port below the range of outgoing connections. */
    static int freePort() throws IOException {
        while (true) {
            // Other tests take ports from 10,000 on, brokers of Sealbus from 20,000 on, and the manual has 7400 and 7779 to 7781.
            int port = ThreadLocalRandom.current().nextInt(5_700, 7_300);
            try (java.net.ServerSocket probe = new java.net.ServerSocket()) {
                probe.bind(new java.net.InetSocketAddress("127.0.0.1", port));
                return port;
            } catch (java.net.BindException taken) {
                continue;
            }
        }
    }

    /**
     * A JADE container in a JVM of its own. It joins as the first of these agents; the others, separated by spaces, are agents
     * of JADE with names on Sealbus.
     */
    Program container(String names, int port, String... options) throws IOException {
        String[] agents = names.split(" ");
        String name = agents[0];
        List<String> command = new ArrayList<>(List.of(JAVA, "-Xmx128m", "-XX:TieredStopAtLevel=1",
                "-cp", System.getProperty("java.class.path"), "jade.Boot", "-icps", "org.sealbus.jade.SealbusICP",
                "-nomtp", "-local-host", "127.0.0.1", "-host", "127.0.0.1", "-port", String.valueOf(port)));
        command.addAll(Arrays.asList(options));
        return program(name, Map.of("SEALBUS_TICKET", ticket(agents)), command.toArray(String[]::new));
    }

    /** A main container on this port. */
    Program mainContainer(String names, int port, String... options) throws IOException {
        List<String> all = new ArrayList<>(List.of("-local-port", String.valueOf(port)));
        all.addAll(Arrays.asList(options));
        Program main = container(names, port, all.toArray(String[]::new));
        main.says("is ready");
        return main;
    }

    @Override
    public void close() {
        Collections.reverse(programs);
        // Only the platform itself, which was started first, ends in order: JADE may wait for its main container.
        for (Program program : programs) {
            if (program == programs.get(programs.size() - 1)) {
                program.process().destroy();
            } else {
                program.process().destroyForcibly();
            }
        }
        for (Program program : programs) {
            try {
                List<ProcessHandle> started = program.process().descendants().toList();
                if (!program.process().waitFor(60, TimeUnit.SECONDS)) {
                    program.process().destroyForcibly().waitFor();
                }
                started.forEach(ProcessHandle::destroyForcibly);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}

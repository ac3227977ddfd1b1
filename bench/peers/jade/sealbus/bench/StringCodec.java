package sealbus.bench;

import jade.lang.acl.ACLMessage;
import jade.lang.acl.StringACLCodec;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

/** JADE's codec for FIPA's String encoding, measured by JMH; the best of the iterations counts. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class StringCodec {
  private static final String CHARSET = "US-ASCII";

  @Param("") public String file;

  private final StringACLCodec codec = new StringACLCodec();
  private byte[] bytes;
  private ACLMessage message;

  @Setup
  public void read() throws Exception {
    bytes = Files.readAllBytes(Path.of(file));
    message = codec.decode(bytes, CHARSET);
  }

  @Benchmark
  public byte[] encode() {
    return codec.encode(message, CHARSET);
  }

  @Benchmark
  public ACLMessage decode() throws Exception {
    return codec.decode(bytes, CHARSET);
  }

  public static void main(String[] arguments) throws Exception {
    for (int index = 0; ; index++) {
      Path path = Path.of(arguments[0], index + ".acl");
      if (!Files.exists(path)) {
        return;
      }
      StringACLCodec codec = new StringACLCodec();
      int length = codec.encode(codec.decode(Files.readAllBytes(path), CHARSET), CHARSET).length;
      Collection<RunResult> results =
          new Runner(
                  new OptionsBuilder()
                      .include(StringCodec.class.getSimpleName())
                      .param("file", path.toString())
                      .forks(1)
                      .warmupIterations(5)
                      .warmupTime(TimeValue.seconds(1))
                      .measurementIterations(5)
                      .measurementTime(TimeValue.seconds(1))
                      .verbosity(VerboseMode.SILENT)
                      .build())
              .run();
      for (RunResult result : results) {
        String name = result.getPrimaryResult().getLabel();
        System.out.printf(
            Locale.ROOT,
            "{\"message\":%d,\"work\":\"%s\",\"nanoseconds\":%f,\"bytes\":%d}%n",
            index, name, result.getPrimaryResult().getStatistics().getMin(), length);
      }
    }
  }
}
